"""The least-cost expander: the cheapest mix of groups over all groups and all pending pods at once.

Here: the search for the mix (cheapest_mix), by column generation (master_problem), the filling of
single nodes (node_filling), rounding and local search (improvement). Not here: filters over single
options (expanders).
"""
