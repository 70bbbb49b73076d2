"""What is possible: exact posteriors and floors."""
