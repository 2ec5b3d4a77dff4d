"""Reads the driver, with a thread for each GPU."""
