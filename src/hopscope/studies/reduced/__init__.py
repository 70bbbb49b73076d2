"""The study `reduced`: the few directions in which weights move, and a small model of when a symbol is learned."""
