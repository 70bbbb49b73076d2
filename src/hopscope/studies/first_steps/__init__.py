"""The study of the three first experiments (summary of the paper): two minutes for a student."""
