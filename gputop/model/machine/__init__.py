"""What a GPU machine is at one instant: frame, host, GPUs, processes; the base of the model."""
