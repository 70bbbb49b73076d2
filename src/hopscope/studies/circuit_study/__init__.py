"""What the studies of circuits and of their emergence share: one model, many seeds, every member read and followed."""
