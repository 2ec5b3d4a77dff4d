"""An invented machine that moves."""
