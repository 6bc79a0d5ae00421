"""Exoscale: SKS Nodepools and standalone Instance Pools of one zone, through the vendor's API v2.

Upstream's provider asks three or four calls per node and waits for minutes inside its loop; this one reads whole lists
and never waits (exoscale.md §6).
"""
