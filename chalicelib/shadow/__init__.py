"""Comparison of a cluster in mode shadow with the autoscaler that acts in it, for `outscaler shadow`.

Here: what the other autoscaler did, the state before it acted, our plan for that state, verdicts, figures and the gate
for mode active. All of it is pure. Not here: the reading and writing of the rows (reconciler, store) and the command
(command/commands/shadow.py).
"""
