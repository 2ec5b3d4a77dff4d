"""The processes of this machine: what each one is, where it belongs, how it was started."""
