"""What an installation for GPUs should look like."""
