"""The study `khop`: k-hop induction, whose depth should grow like log2 k (Sanford et al., arXiv 2402.09268)."""
