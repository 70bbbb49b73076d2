"""The study of emergence (paper, section 9): the heads of a circuit as they form."""
