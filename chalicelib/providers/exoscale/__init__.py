"""Exoscale as a provider: SKS Nodepools and standalone Instance Pools of one zone, through the vendor's API v2.

Upstream's provider makes three or four calls per node and waits for minutes inside its loop; this one reads complete
lists and never waits.
"""
