"""What a run came to, for readers: figures, and the page of one run or several."""
