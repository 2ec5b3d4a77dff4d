"""All that uses private names of Textual or writes to a terminal directly."""
