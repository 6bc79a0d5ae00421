"""The steps of operations, one module per step: taint, drain, delete_instances, decrease_target, scale_up,
remove_nodes.

Here: what one step asks of the cluster or of a provider, resumable after a crash. Not here: the order of steps
(operations/registry.py).
"""
