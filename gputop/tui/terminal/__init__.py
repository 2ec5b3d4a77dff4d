"""All that is private to Textual or raw to a terminal."""
