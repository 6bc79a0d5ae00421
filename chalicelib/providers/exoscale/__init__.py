"""Exoscale: SKS Nodepools and standalone Instance Pools of one zone, through the vendor's API v2.

Here: whole lists instead of calls per node, and no waiting. Not here: the names of its settings in
the policy (policy/vendors/exoscale.py).
"""
