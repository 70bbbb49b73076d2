"""The study of the curriculum (S1): which easier questions are needed, and may each have a position of its own?"""
