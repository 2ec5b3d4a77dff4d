"""The screen; the only package that imports textual or rich."""
