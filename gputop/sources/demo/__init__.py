"""An invented machine, whose values change with time."""
