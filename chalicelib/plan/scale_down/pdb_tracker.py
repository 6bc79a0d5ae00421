"""Tracks PodDisruptionBudgets within one plan: each class is matched once, and pods that the plan moves use up
disruptions.

Evicting a pod that is not ready costs no disruption if its budget says so (`unhealthyPodEvictionPolicy`). With
AlwaysAllow such a pod may always be evicted; otherwise it may be evicted while the budget's application is healthy
without it, as in the eviction API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.snapshot import Budget

MOST_COMPARED = 500_000
"""Maximum comparisons of PodDisruptionBudget selectors with pod classes, per namespace and pass."""


class PdbTracker:
    """Disruptions left per budget, `namespace/name`."""

    def __init__(self, budgets: Sequence[Budget], classes: Sequence[PodClass]) -> None:
        self._classes = classes
        # By namespace and one label that the budget's selector requires; None: selectors that require no single label.
        self._by_label: dict[tuple[str, tuple[str, str] | None], list[Budget]] = {}
        for budget in budgets:
            for label in _asked(budget):
                self._by_label.setdefault((budget.namespace, label), []).append(budget)
        self._allowed = {_name(b): b.allowed for b in budgets}
        self._left = dict(self._allowed)
        self._lenient = frozenset(_name(b) for b in budgets if b.unhealthy_policy == "AlwaysAllow" or b.whole)
        self._of: dict[int, tuple[str, ...]] = {}
        self._asked: dict[str, int] = {}  # namespace -> selectors compared with a class

    def of(self, cls: int) -> tuple[str, ...]:
        """Return the budgets that select a class. A budget without a selector selects nothing; an empty selector
        selects everything."""
        found = self._of.get(cls)
        if found is None:
            pod = self._classes[cls]
            likely = [
                budget
                for label in (None, *pod.labels.items())
                for budget in self._by_label.get((pod.namespace, label), ())
            ]
            found = self._of[cls] = tuple(sorted(_name(b) for b in likely if self._selects(b, pod)))
        return found

    def _selects(self, budget: Budget, pod: PodClass) -> bool:
        """Return whether a budget selects a class. In a namespace with more budgets and classes than can be compared,
        the worst case is assumed: budgets that are no longer compared count as selecting the class, so its pods are
        not moved."""
        if budget.selector is None:
            return False
        asked = self._asked[pod.namespace] = self._asked.get(pod.namespace, 0) + 1
        return asked > MOST_COMPARED or budget.selector.matches(pod.labels)

    def spent_by(self, pod: Pod) -> tuple[str, ...]:
        """Return the budgets from which evicting this pod uses one disruption."""
        names = self.of(pod.cls)
        if names and pod.unready:
            return tuple(name for name in names if name not in self._lenient)
        return names

    def left(self, name: str) -> int:
        """Return the disruptions left; negative if a plan uses more than one at a time."""
        return self._left[name]

    def use(self, used: Mapping[str, int]) -> bool:
        """Use `count` disruptions. Returns whether a budget had fewer left than requested (a risky drain)."""
        risky = False
        for name, count in used.items():
            risky |= self._left[name] < count
            self._left[name] -= count
        return risky

    def reset(self) -> None:
        """Restore the state at the beginning of the plan."""
        self._left = dict(self._allowed)


def _asked(budget: Budget) -> list[tuple[str, str] | None]:
    requirements = budget.selector.requirements if budget.selector is not None else ()
    asked = next((each for each in requirements if each.operator == "In"), None)
    return [(asked.key, value) for value in asked.values] if asked is not None else [None]


def _name(budget: Budget) -> str:
    return f"{budget.namespace}/{budget.name}"
