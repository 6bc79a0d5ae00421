"""The steps of operations: scale_up, remove_nodes with its drain and recheck, and repairs.

Here: what one step asks of the cluster or of a provider, resumable after a crash. Not here: the
order of steps (operations/runner.py).
"""
