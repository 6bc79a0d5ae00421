"""Collects the rules in force and their pools: those of the policy, then those of
HorizontalNodeAutoscaler objects.

An object applies as a whole: with one mistake, or one rule too many on one pool, none of it
applies, and its last good version stays in force. What was not read in this pass keeps its last
known state. See docs/reference/scaling-rules.md "Rules in force".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Metric, Rule, RuleObject
from chalicelib.plan.demand import Demand
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import PoolFacts, PoolNames

MOST_RULES = 10  # on one pool, from all sources; of these one per metric
# missing targets that are reported; further ones add no information and would fill the plan
MOST_UNKNOWN = 100


class BoundRule(Demand, frozen=True):
    """A rule on one pool. It has a verdict if it is invalid there. created: creation time of the
    object that it comes from, 0.0 for the policy's rules."""

    rule: Rule
    pool: PoolFacts
    created: float = 0.0

    @property
    def owner(self) -> str:
        """Its key in memory."""
        return f"{self.rule.key}@{self.pool.id}"


class Sources(msgspec.Struct, frozen=True):
    """bound: in the order in which they act. lost: keys of rules of which a target could not
    be found in this pass. objects: the last good version of each object. verdicts, notes:
    about what is not in force."""

    bound: tuple[BoundRule, ...] = ()
    lost: frozenset[str] = frozenset()
    objects: dict[str, RuleObject] = {}
    verdicts: tuple[RuleVerdict, ...] = ()
    notes: tuple[Reason, ...] = ()


def sources(state: ClusterState) -> Sources:
    """Return all rules of a pass with their pools. Order: the policy's, then by age of the
    object, each in document order."""
    collector = _SourceCollector(state)
    for rule in state.policy.rules:
        for pool in collector.targets(rule):
            problem = _excess(rule, pool, collector.rules_on)
            if not problem:
                collector.rules_on.setdefault(pool.id, []).append(rule.metric)
            collector.bind(rule, pool, 0.0, problem)
    good, versions = _versions(state, collector)

    def age(entry: tuple[str, tuple[RuleObject | None, RuleObject | None]]) -> tuple[float, str]:
        return next((version.created for version in entry[1] if version is not None), 0.0), entry[0]

    for key, (valid, before) in sorted(versions.items(), key=age):
        problem = collector.take(valid) if valid is not None else ""
        if problem:
            collector.refuse(key, problem)
            good.pop(key, None)
            if before is not None:
                good[key] = before
        if (
            (problem or valid is None)
            and before is not None
            and (problem := collector.take(before))
        ):
            collector.refuse(key, f"its last good version cannot be in force either: {problem}")
    return Sources(
        tuple(collector.bound),
        frozenset(collector.lost),
        dict(sorted(good.items())),
        tuple(collector.verdicts),
        tuple(collector.notes.values()),
    )


def _versions(
    state: ClusterState, collector: _SourceCollector
) -> tuple[dict[str, RuleObject], dict[str, tuple[RuleObject | None, RuleObject | None]]]:
    """Return the good version of each object, and by key: what was read, if it is valid,
    and what was good before."""
    good_before, read = state.memory.rule_objects, state.snapshot.rule_objects
    if read is None:
        return dict(good_before), {key: (None, before) for key, before in good_before.items()}
    good: dict[str, RuleObject] = {}
    versions: dict[str, tuple[RuleObject | None, RuleObject | None]] = {}
    for newest in read:
        key, before = newest.key, good_before.get(newest.key)
        if before is not None and before.uid and newest.uid and newest.uid != before.uid:
            before = None  # another object of the same name: the former's rules went with it
        if newest.problems:
            collector.refuse(key, "; ".join(newest.problems))
        versions[key] = (None if newest.problems else newest), before
        if (current := versions[key][0] or before) is not None:
            good[key] = current
    return good, versions


def _excess(rule: Rule, pool: PoolFacts, rules_on: Mapping[str, list[Metric | None]]) -> str:
    """Return why a pool cannot have this rule in addition to its others (rules_on: pool -> metrics
    of its rules), "" if it can."""
    metrics = rules_on.get(pool.id, [])
    if rule.metric is not None and rule.metric in metrics:
        return (
            f"{rule.name}: pool {pool.id} has a rule for {rule.metric.value} already; one is "
            "allowed"
        )
    if len(metrics) >= MOST_RULES:
        return f"{rule.name}: pool {pool.id} has {MOST_RULES} rules already, which is the most"
    return ""


class _SourceCollector:
    """rules_on: pool -> the metrics of its rules, None for a cron rule."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.names = PoolNames(state)
        self.pools: dict[str, PoolFacts | None] = {}
        self.rules_on: dict[str, list[Metric | None]] = {}
        self.bound: list[BoundRule] = []
        self.lost: set[str] = set()
        self.verdicts: list[RuleVerdict] = []
        self.notes: dict[object, Reason] = {}

    def take(self, rule_object: RuleObject) -> str:
        """Bind the rules of an object, or return why they would be too many and bind none.
        Disabled objects are ignored."""
        if rule_object.disabled:
            return ""
        zone = self.state.policy.scale_up.cron_time_zone
        rules = [msgspec.structs.replace(rule, time_zone=zone) for rule in rule_object.rules]
        rules_on = {pool: list(metrics) for pool, metrics in self.rules_on.items()}
        for rule in rules:
            for pool in self.targets(rule, report=False):
                if problem := _excess(rule, pool, rules_on):
                    return problem
                rules_on.setdefault(pool.id, []).append(rule.metric)
        self.rules_on = rules_on
        for rule in rules:
            for pool in self.targets(rule):
                self.bind(rule, pool, rule_object.created, "")
        return ""

    def bind(self, rule: Rule, pool: PoolFacts, created: float, problem: str) -> None:
        low = threshold_problem(rule, pool, self.state)
        if low and not rule.source:
            problem = problem or low
        elif doubt := low or _never_exceeded(rule, self.state):
            # CCE accepts such an object. Removals then keep what the rule needs
            # (allocation_rate.RuleRemovalGuard).
            self._note(Reason.of(ReasonCode.RULE_THRESHOLD, rule=rule.key, detail=doubt))
        invalid = (
            Reason.of(ReasonCode.RULE_INVALID, rule=rule.key, detail=problem) if problem else None
        )
        self.bound.append(BoundRule(rule, pool, created, verdict=invalid))
        if invalid is not None:
            self._note(invalid)

    def targets(self, rule: Rule, *, report: bool = True) -> Iterator[PoolFacts]:
        """Return the pools of a rule, each once; report: missing ones, as verdicts."""
        yielded = set()
        for name in rule.groups:
            if name not in self.pools:
                self.pools[name] = self.names.find(name)
            pool = self.pools[name]
            if pool is None and report:
                self._report_missing(rule, name)
            elif pool is not None and pool.id not in yielded:
                yielded.add(pool.id)
                yield pool

    def _report_missing(self, rule: Rule, name: str) -> None:
        """Report a target that no provider has; if a provider could not be
        read, the target may exist."""
        self.lost.add(rule.key)
        if len(self.verdicts) >= MOST_UNKNOWN:
            return
        unread = self.state.unread_provider
        reason = unread or Reason.of(ReasonCode.RULE_NO_GROUP, rule=rule.key, group=name)
        self.verdicts.append(RuleVerdict(rule.name, name, rule.source, reason=reason))
        if unread is None:
            self._note(reason)

    def refuse(self, key: str, detail: str) -> None:
        self._note(Reason.of(ReasonCode.RULE_OBJECT_INVALID, object=key, detail=detail))

    def _note(self, reason: Reason) -> None:
        self.notes[reason.key] = reason


def threshold(rule: Rule, state: ClusterState) -> int:
    """Return the percentage above which a metric rule acts."""
    own = {
        Metric.CPU: state.policy.scale_up.cpu_threshold,
        Metric.MEMORY: state.policy.scale_up.memory_threshold,
    }
    return rule.above or own.get(rule.metric or Metric.CPU, 0)


def _never_exceeded(rule: Rule, state: ClusterState) -> str:
    """Return why a metric rule can hardly act, "" if it can."""
    if rule.metric is None or threshold(rule, state) < 100:
        return ""
    setting = (
        "its threshold" if rule.above else f"automatic, and scaleUp.{rule.metric.value}Threshold"
    )
    return f"{setting} is 100%, which the requests of a pool do not exceed; set less"


def threshold_problem(rule: Rule, pool: PoolFacts, state: ClusterState) -> str:
    """Return why a metric rule would add what removals take away again, "" if it would not.
    Where nothing is ever removed, as is CCE's default, any threshold is allowed. A rule of the
    policy is refused for it."""
    if rule.metric is None or not state.options.scale_down_enabled:
        return ""
    above = threshold(rule, state)
    for name in pool.groups:
        own = state.groups[name].group.options.scale_down_utilization_threshold
        least = state.options.scale_down_utilization_threshold if own is None else own
        if above / 100 <= least:
            return (
                f"{above}% is not above scaleDownUtilizationThreshold {least:g} of {name}, so that "
                "nodes would be "
                "added and removed in turn; raise it"
            )
    return ""
