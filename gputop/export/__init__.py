"""Frames for readers other than the screen: text, JSON, pages over HTTP."""
