"""One increase spread over similar groups (scale-up.md §9): which groups are alike, and who gets how many nodes.

Only with balanceSimilarNodeGroups or within a vendor's pool, and never for zero-or-max groups. What fits where is not
asked here: that the pods of an option run on a similar group too is for the caller to say (`takes`).
"""

from chalicelib.plan.scale_up.balancing.distribution import balance, free_capacity, split
from chalicelib.plan.scale_up.balancing.similarity import Likeness, similar_groups

__all__ = ["Likeness", "balance", "free_capacity", "similar_groups", "split"]
