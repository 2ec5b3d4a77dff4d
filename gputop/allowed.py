"""What options and settings may be."""

MIN_INTERVAL = 0.1
"""Seconds."""
MAX_INTERVAL = 60.0
"""Seconds."""
THEMES = ("ansi-dark", "ansi-light", "dark", "light", "colorblind")
"""The first two are drawn in the terminal's own 16 colours."""
