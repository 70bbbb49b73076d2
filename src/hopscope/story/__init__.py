"""What a page says: a template in Markdown, filled with numbers of the evidence, becomes the story of a run."""
