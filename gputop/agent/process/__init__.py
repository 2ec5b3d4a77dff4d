"""The processes of this machine: what each is, where it belongs, what it was started with."""
