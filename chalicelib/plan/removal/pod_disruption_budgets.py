"""Counts what PodDisruptionBudgets still permit while removals are drawn.

A drain rule (drain_rules.py) asks for one pod whether a budget stands against its eviction. Here
the evictions of all removals of a pass are counted together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import PodDisruptionBudget

MOST_COMPARED = 500_000
"""Maximum comparisons of PodDisruptionBudget selectors with pod classes, per namespace and pass."""


class PodDisruptionBudgets:
    """Disruptions left per PodDisruptionBudget, `namespace/name`, within one plan: each class is
    matched once, and pods that the plan moves use up disruptions.

    Evicting a pod that is not ready costs no disruption if its budget says so
    (`unhealthyPodEvictionPolicy`). With AlwaysAllow such a pod may always be evicted; otherwise it
    may be evicted while the budget's application is healthy without it, as in the eviction API.
    """

    def __init__(self, budgets: Sequence[PodDisruptionBudget], classes: Sequence[PodClass]) -> None:
        self._classes = classes
        # By namespace and one label that the budget's selector requires; None: selectors that
        # require no single label.
        self._by_label: dict[tuple[str, tuple[str, str] | None], list[PodDisruptionBudget]] = {}
        for budget in budgets:
            requirements = budget.selector.requirements if budget.selector is not None else ()
            label = next(
                (requirement for requirement in requirements if requirement.operator == "In"), None
            )
            for pair in (
                [(label.key, value) for value in label.values] if label is not None else [None]
            ):
                self._by_label.setdefault((budget.namespace, pair), []).append(budget)
        self._allowed = {_name(b): b.allowed for b in budgets}
        self._left = dict(self._allowed)
        self._required = {_name(b): b.required for b in budgets if b.required}
        self._lenient = frozenset(
            _name(b) for b in budgets if b.unhealthy_policy == "AlwaysAllow" or b.whole
        )
        self._of: dict[int, tuple[str, ...]] = {}
        self._compared: dict[str, int] = {}  # namespace -> selectors compared with a class

    def of(self, cls: int) -> tuple[str, ...]:
        """Return the budgets that select a class. A budget without a selector selects nothing; an
        empty selector selects everything."""
        names = self._of.get(cls)
        if names is None:
            pod = self._classes[cls]
            likely = [
                budget
                for label in (None, *pod.labels.items())
                for budget in self._by_label.get((pod.namespace, label), ())
            ]
            names = self._of[cls] = tuple(sorted(_name(b) for b in likely if self._selects(b, pod)))
        return names

    def _selects(self, budget: PodDisruptionBudget, pod: PodClass) -> bool:
        """Return whether a budget selects a class. In a namespace with more budgets and classes
        than can be compared, the worst case is assumed: budgets that are no longer compared count
        as selecting the class, so its pods are not moved."""
        if budget.selector is None:
            return False
        compared = self._compared[pod.namespace] = self._compared.get(pod.namespace, 0) + 1
        return compared > MOST_COMPARED or budget.selector.matches(pod.labels)

    def spent_by(self, pod: Pod) -> tuple[str, ...]:
        """Return the budgets from which evicting this pod uses one disruption."""
        names = self.of(pod.cls)
        if names and pod.unready:
            return tuple(name for name in names if name not in self._lenient)
        return names

    def left(self, name: str) -> int:
        """Return the disruptions left; negative if a plan uses more than one at a time."""
        return self._left[name]

    def refusal(self, name: str) -> Reason:
        """Return why a budget without a disruption left holds a pod: it needs all of its pods, or
        others are away now."""
        required = self._required.get(name)
        params: dict[str, str | int | float] = {"budget": name}
        if required is not None:
            params["required"] = required
        return Reason(ReasonCode.NOT_ENOUGH_PDB, params)

    def exhausted(self, limited: Iterable[tuple[Pod, tuple[str, ...]]]) -> tuple[Pod, str] | None:
        """Return the first of these pods with a budget that has no
        disruptions left, and that budget."""
        return next(
            ((pod, name) for pod, names in limited for name in names if self._left[name] < 1), None
        )

    def use(self, used: Mapping[str, int]) -> bool:
        """Use `count` disruptions. Returns whether a budget had fewer left than
        requested (a risky drain)."""
        risky = False
        for name, count in used.items():
            risky |= self._left[name] < count
            self._left[name] -= count
        return risky

    def copy(self) -> PodDisruptionBudgets:
        """Return a tracker with the same disruptions left, for a trial that is undone.
        What was matched is shared."""
        other = copy(self)
        other._left = dict(self._left)
        other._allowed = dict(self._left)
        return other

    def reset(self) -> None:
        """Restore the state at the beginning of the plan, or of the trial."""
        self._left = dict(self._allowed)


def _name(budget: PodDisruptionBudget) -> str:
    return f"{budget.namespace}/{budget.name}"
