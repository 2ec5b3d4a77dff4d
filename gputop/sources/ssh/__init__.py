"""Machines at the other end of ssh."""
