"""Simulated removals: what blocks a node, where its pods would go, and in which order nodes are tried.

Here: attempts on one simulated cluster, each with the moves of those before it. Not here: the choice of the nodes that
are removed now (selection.py).
"""
