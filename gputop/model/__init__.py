"""What a GPU machine is: plain data and pure functions, no I/O."""
