"""Makers of the documentation's tables, by topic; `python docs/tables.py` puts them in place."""
