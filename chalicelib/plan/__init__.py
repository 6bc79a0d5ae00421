"""The planner: a pure function (Snapshot, Policy, Memory, now, seed) -> (Plan, Memory).

Here: every decision; planner.py lists the stages in their order, and docs/reference/ has the rules.
Not here: input and output, clocks and random numbers.
"""
