"""Runs the checks in order, within a time budget. A check that cannot be asked is UNASKED, and never counts as good."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from chalicelib.command.doctor.cluster_checks import CLUSTER_CHECKS
from chalicelib.command.doctor.context import Check, DoctorContext
from chalicelib.command.doctor.deployment_checks import DEPLOYMENT_CHECKS
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.command.doctor.vendor_checks import VENDOR_CHECKS
from chalicelib.model.errors import MALFORMED, BadInput, OutscalerError, published_name

CHECKS: tuple[Check, ...] = (*CLUSTER_CHECKS, *VENDOR_CHECKS, *DEPLOYMENT_CHECKS)
BUDGET = 20.0
"""Seconds after which no further check begins."""
_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.UNASKED: 2, Severity.INFO: 3}
_CONNECTION = "DR04"
CONNECTION = "connection"
"""The subject of what cannot be reached. It is always told, and has no check of its own."""
_FAILED: tuple[type[Exception], ...] = (OutscalerError, OSError, *MALFORMED)


def examine(
    context: DoctorContext,
    only: Sequence[str] = (),
    budget: float = BUDGET,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[Finding, ...]:
    """Return the findings, worst first, in the order of the checks. only: subjects or ids, empty for all. Raises
    BadInput for a word in `only` that no check has."""
    until = monotonic() + budget
    found: list[Finding] = list(_unreachable(context))
    for check in _chosen(only):
        if monotonic() >= until:
            found.extend(_unasked(check, f"the time for checks, {budget:.0f} s, was over"))
            continue
        try:
            found.extend(check.run(context))
        except _FAILED as error:
            text = str(error) if isinstance(error, OutscalerError) else published_name(error)
            found.extend(_unasked(check, text))
    return tuple(sorted(found, key=lambda each: _RANK[each.severity]))


def subjects() -> tuple[str, ...]:
    """Return the subjects of all findings, in order."""
    return (CONNECTION, *dict.fromkeys(check.subject for check in CHECKS))


def _chosen(only: Sequence[str]) -> tuple[Check, ...]:
    if not only:
        return CHECKS
    known = {*subjects(), *(id_ for check in CHECKS for id_ in check.ids)}
    for word in only:
        if word not in known:
            raise BadInput("--only", f"{word[:40]!r} is not a check", f"known: {', '.join(subjects())}, or an id")
    return tuple(check for check in CHECKS if check.subject in only or set(check.ids) & set(only))


def _unreachable(context: DoctorContext) -> list[Finding]:
    """One error for each cluster or provider that cannot be reached; its checks are UNASKED."""
    return [
        Finding(
            id=_CONNECTION if place in ("workload", "management") else "DR11",
            severity=Severity.ERROR,
            subject=CONNECTION,
            message=f"{place}: {why}",
            fix="correct the kubeconfig, the credentials or the network path, and repeat the command",
        )
        for place, why in context.unreachable
    ]


def _unasked(check: Check, why: str) -> list[Finding]:
    return [
        Finding(
            id=id_,
            severity=Severity.UNASKED,
            subject=check.subject,
            message=f"not checked: {why}",
            fix="repeat the command when that is corrected",
        )
        for id_ in check.ids
    ]
