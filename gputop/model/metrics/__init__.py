"""What is shown of a GPU or a process, declared once, and its history."""
