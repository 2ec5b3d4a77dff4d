"""What is waited for: judged frame by frame, by who says what time it is."""
