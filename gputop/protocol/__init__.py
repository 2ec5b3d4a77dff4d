"""What an agent and its reader say to each other."""
