"""The study `associative-recall`: many queries of one memory in context (Zoology, arXiv 2312.04927)."""
