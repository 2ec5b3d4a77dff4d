"""Frames leaving without a TUI."""
