"""What is possible: floors of losses, and how many layers information needs."""
