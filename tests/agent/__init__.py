"""The agent on simulated machines: a real process, driven over its pipe."""
