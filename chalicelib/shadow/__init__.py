"""Comparison of a cluster in mode shadow with the autoscaler that acts in
it, for `outscaler shadow`.

Here: what the other autoscaler did, the state before it acted, our plan for that state, verdicts
and their sums. All of it is pure. Not here: the reading and writing of the rows (reconciler,
store), figures and the gate for mode active (cli/migrate/shadow_view.py), their table
(cli/migrate/shadow_table.py), and the command (cli/commands/shadow.py).
"""
