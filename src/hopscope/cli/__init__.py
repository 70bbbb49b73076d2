"""The door: one module for each command; no science."""
