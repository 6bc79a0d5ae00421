"""The planner: a pure function from (Snapshot, Policy, Memory, now, seed) to (Plan, Memory), without I/O, a clock or
global randomness.

Read planner.py first: it lists the stages in order. docs/decisions.md gives the rules and their sources.
"""
