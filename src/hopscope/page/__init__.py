"""What a run came to, for readers: figures, the page of one run or several, and displays for notebooks."""
