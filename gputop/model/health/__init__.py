"""What is wrong with a GPU, and what it has been doing, in words."""
