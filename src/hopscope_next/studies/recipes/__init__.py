"""The study of recipes: which details of start and schedule it takes for stacked heads to form."""
