"""The permutation-lookup study (presentation): elimination, recall, and what it takes to learn them."""
