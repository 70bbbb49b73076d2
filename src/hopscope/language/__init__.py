"""Language models: what they are asked, how they are asked, which of their heads do it, and what texts demand."""
