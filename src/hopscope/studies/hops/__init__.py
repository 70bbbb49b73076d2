"""The study `hops`: k-hop induction over a small alphabet (Sanford, Hsu and Telgarsky, arXiv 2402.09268)."""
