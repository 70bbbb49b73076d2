"""Language models answer retrieval problems in words (paper, section 4): how often, and how they fail."""
