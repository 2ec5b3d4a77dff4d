"""What is installed for GPUs on this machine, and in a Python environment."""
