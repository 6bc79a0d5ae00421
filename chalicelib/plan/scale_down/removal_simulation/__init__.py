"""Trying removals: what holds a node, where its pods would go, and in which order nodes are tried (scale-down.md §5).

holds.py    the drain rules over a node's pods: it is held, or these pods must move
orders.py   in which order nodes are tried, so that as many as possible can go
places.py   another place for a pod, found fast, and taken back where a node turns out to be needed
trial.py    one attempt after the other on the same cluster, each with the earlier ones' moves kept
timers.py   since when a node is unneeded
"""
