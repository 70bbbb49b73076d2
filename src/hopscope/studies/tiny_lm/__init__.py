"""The study of a small language model of our own, asked through the same harness as any other."""
