"""The driver, read: one GPU by one thread."""
