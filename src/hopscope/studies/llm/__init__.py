"""The study of language models (paper, section 4): retrieval problems in words, and how they fail."""
