"""Runs on the GPU machine: reads the driver and the processes, makes frames."""
