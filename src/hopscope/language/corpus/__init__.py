"""How many retrieval steps the words of a text need."""
