"""A collection of trained members: weights, circuits and timelines in one folder that stands on its own.

`index` says what is in the folder and checks its files, `opening` makes a member a module again, `building` makes a
collection of run folders, `card` writes its dataset card.
"""
