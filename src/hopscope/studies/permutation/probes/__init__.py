"""What members of the permutation study know, and how: probes of their answers, heads and last row."""
