"""Frames of another machine, over the ssh that people have."""
