"""(Snapshot, Policy, Memory, now, seed) -> (Plan, Memory), and nothing else: no I/O, no clock, no chance.

Read decide.py first; it is the table of contents. Rules and their sources are in docs/decisions.md.
"""
