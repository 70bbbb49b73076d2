"""Claims: what sources say, what is demanded of the numbers, and the verdict that follows (free of torch)."""
