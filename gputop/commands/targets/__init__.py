"""The processes and GPUs that the words of a command mean, and waiting for them."""
