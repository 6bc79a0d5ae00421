"""Applies the drain rules to one pod; callers name only the fields in which it differs from an ordinary pod."""

from __future__ import annotations

from typing import Any

from chalicelib.model.pod import Owner, Pod, PodClass
from chalicelib.model.policy import Options
from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.snapshot import Budget, Controller
from chalicelib.plan.scale_down import drain_rules
from chalicelib.plan.scale_down.drain_rules.verdict import Action, DrainContext
from chalicelib.plan.scale_down.pdb_tracker import PdbTracker
from tests.builders import NOW

MOVE, SKIP, EVICT, WAIT, BLOCK = Action.MOVE, Action.SKIP, Action.EVICT, Action.WAIT, Action.BLOCK
SYSTEM: dict[str, Any] = {"namespace": "kube-system"}
YOUNG = {"created": NOW - 59 * 60}
APP = Selector((Requirement("app", "In", ("x",)),))
OTHER = Selector((Requirement("app", "In", ("y",)),))


def assess(
    cls: dict[str, Any],
    pod: dict[str, Any] | None = None,
    budgets: tuple[Budget, ...] = (),
    controllers: tuple[Controller, ...] = (),
    **options: Any,
) -> tuple[Action, ReasonCode | None]:
    """Returns the drain verdict on a running ReplicaSet pod, two hours old, with these class and pod fields."""
    made = PodClass(
        **{
            "namespace": "default",
            "labels": {"app": "x"},
            "requests": {},
            "owner": Owner("ReplicaSet", "rs", "u"),
            **cls,
        }
    )
    fields: dict[str, Any] = {"created": NOW - 7200, "node": "n", "phase": "Running", **(pod or {})}
    context = DrainContext(
        now=NOW,
        options=Options(**options),
        budgets=PdbTracker(budgets, [made]),
        controllers={(c.kind, c.namespace, c.name): c for c in controllers},
        controller_kinds=frozenset(c.kind for c in controllers),
    )
    verdict = drain_rules.assess(Pod(made.namespace, "p", "u", 0, **fields), made, context)
    return verdict.action, verdict.reason.code if verdict.reason else None
