"""The state that all planning steps read: nodes, node groups, pending pods, templates, health,
back-offs, the time of a pass.

Here: what follows from snapshot, policy and memory before any decision. Not here: trial placements
(simulation) and decisions.
"""
