"""Measurements of speed, beside other ways to do the same; `hopscope bench --suite NAME` runs one of the files.

A suite is a file with a function `measure(asked)` that gives comparisons one by one.  What several share begins with
`_`.
"""
