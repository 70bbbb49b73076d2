"""The study `recall`: multi-query associative recall by width and number of pairs (Arora et al., arXiv 2312.04927)."""
