"""Whole screens of one subject: a process, a GPU, graphs, health, the mapping."""
