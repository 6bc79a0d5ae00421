"""The placement of the pending pods in stages: on existing nodes, on new nodes, and in every order that the scheduler
could use.

A stage takes the result of the one before it. See docs/reference/scale-up.md "Final placement".
"""
