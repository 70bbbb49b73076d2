"""Models with a known circuit, hand-set in numpy from the definitions of the tasks alone.

Nothing here knows the laboratory's rules, roles, zoo or samplers; only `packing` turns the arrays into its models.
"""
