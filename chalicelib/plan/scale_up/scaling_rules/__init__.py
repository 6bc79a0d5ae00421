"""Cron and metric rules: nodes that users request by time or by the allocation rate of a pool. See
docs/reference/scaling-rules.md "Scaling rules"."""

from chalicelib.plan.scale_up.scaling_rules.planner import RuleResults, plan_rules

__all__ = ["RuleResults", "plan_rules"]
