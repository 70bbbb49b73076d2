"""Sets of questions, and what the answers to them come to."""
