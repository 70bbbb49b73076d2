"""What it knows: measurements of trained models on held-out data."""
