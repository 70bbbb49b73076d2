"""The study `formation`: when induction heads form, by context and batch."""
