"""The study `conditional` (S5): is retrieval that branches learned, and by the heads that follow a chain?"""
