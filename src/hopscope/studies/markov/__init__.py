"""The study `markov`: in-context Markov chains, beside predictors that count (Edelman et al., arXiv 2402.11004)."""
