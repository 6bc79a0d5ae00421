"""PodDisruptionBudgets inside one plan: each class is matched once, and what the plan moves is used up."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.pod import PodClass
from chalicelib.model.snapshot import Budget


class BudgetLedger:
    """Disruptions left per budget, `namespace/name`."""

    def __init__(self, budgets: Sequence[Budget], classes: Sequence[PodClass]) -> None:
        self._classes = classes
        self._budgets: dict[str, list[Budget]] = {}
        for budget in budgets:
            self._budgets.setdefault(budget.namespace, []).append(budget)
        self._left = {f"{b.namespace}/{b.name}": b.allowed for b in budgets}
        self._of: dict[int, tuple[str, ...]] = {}

    def of(self, cls: int) -> tuple[str, ...]:
        """The budgets that select a class; a budget without a selector selects nothing, an empty one everything."""
        found = self._of.get(cls)
        if found is None:
            pod = self._classes[cls]
            found = self._of[cls] = tuple(
                f"{b.namespace}/{b.name}" for b in self._budgets.get(pod.namespace, ())
                if b.selector is not None and b.selector.matches(pod.labels)
            )
        return found

    def left(self, name: str) -> int:
        """Disruptions left; below 0 when a plan uses more than one at a time."""
        return self._left[name]

    def use(self, classes: Sequence[int]) -> bool:
        """Take one disruption per pod. Returns whether a budget had fewer than it was asked for (a risky drain)."""
        risky = False
        for cls in classes:
            for name in self.of(cls):
                risky |= self._left[name] < 1
                self._left[name] -= 1
        return risky
