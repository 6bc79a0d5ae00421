"""Cron and metric rules (huaweicloud-cce.md A1-A5): nodes that people ask for by the clock or by how full a pool is."""

from chalicelib.plan.scale_up.scaling_rules.planner import RuleResults, plan_rules

__all__ = ["RuleResults", "plan_rules"]
