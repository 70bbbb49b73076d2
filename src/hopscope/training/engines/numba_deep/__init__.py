"""For pre-norm layers: samples side by side in vector registers."""
