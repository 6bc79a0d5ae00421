"""Scale-up: which node groups grow, by how many nodes, for which reason.

Here: preconditions, search, estimator, expanders, balancing, limits, headroom and scaling rules.
Not here: the execution (operations).
"""
