"""Cron and metric rules: nodes that are added by the clock or by the allocation rate of a pool.

Here: the rules in force with their pools, and the rates of pools. Not here: which rules are due and
what they add (scale_up/rule_purchases.py), and the parsing of rules (policy, snapshot).
"""
