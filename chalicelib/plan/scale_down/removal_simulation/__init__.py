"""Simulates removals: which pods block a node, where its pods would go, and in which order nodes are tried.

drainability.py      applies the drain rules to a node's pods: the node is blocked, or these pods must move
node_order.py        orders the nodes so that as many as possible can be removed
pod_destinations.py  finds another place for a pod quickly, with rollback if the node turns out to be needed
removal_trial.py     tries one node after the other on the same cluster and keeps the moves of earlier ones
headroom_reserve.py  keeps the headroom of existing nodes on the nodes that stay
"""
