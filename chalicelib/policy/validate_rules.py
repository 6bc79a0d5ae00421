"""Cross-field validation of scaling rules: with each other, per group, and with the scale-down utilization
threshold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.model.policy import Options
from chalicelib.model.scaling_rules import ScaleUp
from chalicelib.policy.diagnostics import Diagnostics
from chalicelib.policy.partial_policy import SPEC, PartialPolicy, names_once

MOST_PER_GROUP = 10


def _names_once(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    names_once(draft_policy, "rules", "rules", "rule", diagnostics)


def _few_per_group(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """A group has at most ten rules, one of them about cpu and one about memory. A rule counts for each of its groups;
    two names that may mean one pool are detected where groups are known (plan/scale_up/scaling_rules)."""
    seen: dict[str, list[int]] = {}
    metrics: dict[tuple[str, str], int] = {}
    for index, rule in enumerate(draft_policy.spec.get("rules", ())):
        path = (*SPEC, "rules", index)
        for group in rule.get("groups", ()):
            seen.setdefault(group, []).append(index)
            if len(seen[group]) == MOST_PER_GROUP + 1:
                diagnostics.problem(
                    (*path, "groups"),
                    f"is the eleventh rule for {group}",
                    f"keep at most {MOST_PER_GROUP} rules per group",
                )
            if "metric" not in rule:
                continue
            first = metrics.setdefault((group, rule["metric"]), index)
            if first != index:
                diagnostics.problem(
                    (*path, "metric"),
                    f"{group} has a rule about {rule['metric']} already: rules[{first}]",
                    f"keep one rule about {rule['metric']} per group",
                )


def _above_the_scale_down_threshold(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """A rule must act strictly above the utilization up to which nodes are removed; otherwise nodes are added and
    removed in turn. Without `above`, the threshold of spec.scaleUp applies. A policy that never removes nodes is
    exempt."""
    if draft_policy.options.in_force.get("scale_down_enabled") is False:
        return
    option = (*SPEC, "options", "scaleDownUtilizationThreshold")
    if diagnostics.has_problem_under(option) or diagnostics.has_problem_under((*SPEC, "scaleUp")):
        return
    given = draft_policy.options.in_force.get(
        "scale_down_utilization_threshold", Options().scale_down_utilization_threshold
    )
    least = round(given * 100, 9)
    for index, rule in enumerate(draft_policy.spec.get("rules", ())):
        path = (*SPEC, "rules", index)
        if "metric" not in rule or diagnostics.has_problem_under((*path, "above")):
            continue
        above = rule.get("above") or _fallback(draft_policy, rule["metric"])
        if above <= least:
            what = f"{above}%" if rule.get("above") else f"scaleUp's threshold, {above}%,"
            right = f"write more than {least:g}, or " if least < 100 else ""
            diagnostics.problem(
                (*path, "above" if "above" in rule else "metric"),
                f"{what} is not above options.scaleDownUtilizationThreshold, {least:g}%: nodes would be "
                "added and removed in turns",
                f"{right}lower that option",
            )


def _fallback(draft_policy: PartialPolicy, metric: str) -> int:
    given: dict[str, Any] = draft_policy.spec.get("scale_up") or {}
    name = f"{metric}_threshold"
    return int(given.get(name, getattr(ScaleUp(), name)))


def _exceedable(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of a metric rule that acts above 100%: a pool's requests do not exceed its allocatable. CCE's "-1" (the
    threshold is automatic) is a rule without `above`, and its add-on's default for it is 100%."""
    for index, rule in enumerate(draft_policy.spec.get("rules", ())):
        path = (*SPEC, "rules", index)
        if "metric" not in rule or (rule.get("above") or _fallback(draft_policy, rule["metric"])) < 100:
            continue
        fallback = f"has no threshold of its own, and scaleUp.{rule['metric']}Threshold is 100%"
        what = "is 100%" if rule.get("above") else fallback
        diagnostics.warn(
            (*path, "above" if "above" in rule else "metric"),
            f"{what}, which the requests of a pool do not exceed: it adds nothing; write a lower one",
        )


def _switches(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of settings that are written in the document but disabled."""
    given: dict[str, Any] = draft_policy.spec.get("scale_up") or {}
    if given.get("rules") is False and draft_policy.spec.get("rules"):
        diagnostics.warn((*SPEC, "rules"), "none of them is in force: scaleUp.rules is false")
    if given.get("rules") is False and given.get("unschedulable_pods") is False:
        diagnostics.warn((*SPEC, "scaleUp"), "groups grow for no pod and by no rule: both switches are false")


RULE_CHECKS: tuple[Callable[[PartialPolicy, Diagnostics], None], ...] = (
    _names_once,
    _few_per_group,
    _above_the_scale_down_threshold,
    _exceedable,
    _switches,
)
