"""How it learns: one trainer for any task, many members at once, resumable at any point."""
