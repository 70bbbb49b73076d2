"""Stories of runs: a template in Markdown, filled with numbers of the evidence, becomes a page."""
