"""The placement of the pending pods in stages: on existing nodes, on new nodes, and in every order
that the scheduler could use.

Here: the stages, each of which takes the result of the one before it, and the planned nodes
(docs/reference/scale-up.md "Final placement"). Not here: the search for the groups that grow
(plan/scale_up/scale_up_search.py).
"""
