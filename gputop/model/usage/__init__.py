"""Who held GPUs over days, who worked on them, and what nobody knows of that time."""
