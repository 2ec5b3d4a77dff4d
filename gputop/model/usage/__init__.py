"""Who held GPUs over days, who worked on them, and how much of that time is not known."""
