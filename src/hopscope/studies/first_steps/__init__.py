"""The study of the three first experiments (summary of the paper): ten minutes for a student."""
