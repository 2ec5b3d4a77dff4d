"""Several machines at once: a row of each, their free GPUs and their users."""
