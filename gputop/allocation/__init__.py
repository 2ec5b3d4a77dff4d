"""GPUs for a job: watching until there are enough, reserving them, naming them to a program."""
