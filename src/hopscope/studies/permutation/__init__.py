"""Permutation lookup: does a tiny transformer remember, or only rule out?"""
