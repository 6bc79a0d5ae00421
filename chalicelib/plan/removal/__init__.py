"""Removals: which nodes may go, which of them go now and by which method,
and what blocks the others.

Here: candidates, drain rules, simulated removals, methods, the budgets that all methods draw from.
Not here: the drain itself (operations).
"""
