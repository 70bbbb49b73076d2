"""How a model does it: circuits read from attention patterns, and proven by ablation."""
