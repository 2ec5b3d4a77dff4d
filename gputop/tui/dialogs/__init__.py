"""Screens over a screen: signals, columns, sorting, help."""
