"""A small language model of our own learns questions in equations, and is asked them as any language model is."""
