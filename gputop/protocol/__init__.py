"""Messages between an agent and its reader."""
