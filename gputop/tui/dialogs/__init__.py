"""Screens over a screen: signals, columns, panes, sorting, times."""
