"""Models whose circuit is known because it was built: witnesses of the fewest layers, and planted circuits.

They prove readers of circuits, and theorems about layers.  A study may begin training from one; `hopscope zoo`
scores finders of circuits on the planted ones.
"""
