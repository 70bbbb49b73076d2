"""The study of conditional retrieval (S5): is retrieval that branches learned, and by which heads?"""
