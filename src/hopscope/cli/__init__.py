"""The command line: one module for each command; no science."""
