"""Signals: the pinned process, what becomes of it, and the audit log."""
