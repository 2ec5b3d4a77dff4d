"""The agent where nothing is installed: what takes the place of msgspec and psutil there."""
