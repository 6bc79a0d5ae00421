"""Cron and metric rules: nodes that are added by the clock or by the utilization of a pool.

Here: which rules are due and what they add. Not here: the parsing of rules (policy, snapshot).
"""

from chalicelib.plan.scale_up.scaling_rules.planner import RuleResults, plan_rules

__all__ = ["RuleResults", "plan_rules"]
