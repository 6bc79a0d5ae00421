"""The simulated cluster: pods placed on existing and new nodes, with undo.

Here: placement, bins, pod topology, attach limits. Not here: what to buy (scale_up) and
what to remove (removal).
"""
