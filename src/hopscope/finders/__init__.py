"""Circuit finders."""
