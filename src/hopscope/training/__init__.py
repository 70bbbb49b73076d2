"""How it learns: one loop for any task, many members at once, resumable at any point.  `config` loads no torch."""
