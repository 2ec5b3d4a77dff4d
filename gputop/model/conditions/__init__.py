"""Conditions that a person waits for, judged frame by frame; the caller passes the time."""
