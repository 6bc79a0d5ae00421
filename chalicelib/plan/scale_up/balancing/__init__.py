"""Distribution of new nodes over similar node groups.

Here: similarity of groups and the number of nodes for each of them. Not here: whether the pods of an option fit a
similar group; the caller decides that. Zero-or-max groups are never balanced.
"""

from chalicelib.plan.scale_up.balancing.distribution import balance, free_capacity, split
from chalicelib.plan.scale_up.balancing.similarity import Likeness, similar_groups

__all__ = ["Likeness", "balance", "free_capacity", "similar_groups", "split"]
