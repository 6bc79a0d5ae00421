"""Cron and metric rules: nodes that are added by the clock or by the utilization of a pool.

Here: which rules are due and what they add (planner). Not here: the parsing of rules (policy, snapshot).
"""
