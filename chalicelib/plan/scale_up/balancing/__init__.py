"""Balances one scale-up over similar node groups: finds similar groups and distributes the new nodes.

Used with balanceSimilarNodeGroups or within a vendor's pool, and never for zero-or-max groups. This package does not
check predicates: the caller states through `takes` whether the pods of an option also run on a similar group.
"""

from chalicelib.plan.scale_up.balancing.distribution import balance, free_capacity, split
from chalicelib.plan.scale_up.balancing.similarity import Likeness, similar_groups

__all__ = ["Likeness", "balance", "free_capacity", "similar_groups", "split"]
