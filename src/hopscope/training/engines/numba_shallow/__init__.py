"""For one causal post-norm layer on short token sequences: tables, and prefixes that are counted."""
