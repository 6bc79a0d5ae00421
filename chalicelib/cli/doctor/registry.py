"""Runs the checks in order, within a limit of time. A check that cannot be asked is UNASKED,
and never counts as good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from chalicelib.cli.doctor import (
    cluster_state,
    deployment_checks,
    descheduler,
    drains,
    kubeconfig_checks,
    node_templates,
    other_autoscalers,
    permissions,
    vendor_checks,
)
from chalicelib.cli.doctor.finding import QUESTIONS, DoctorContext, Finding, Severity, finding
from chalicelib.model.errors import MALFORMED, BadInput, OutscalerError, published_name


class Check(msgspec.Struct, frozen=True):
    """A check. run: returns findings with one of the ids, empty where nothing is wrong; may raise
    OutscalerError, which becomes one UNASKED finding per id."""

    ids: tuple[str, ...]
    run: Callable[[DoctorContext], Iterable[Finding]]

    @property
    def subject(self) -> str:
        """The subject of its findings, for --only."""
        return QUESTIONS[self.ids[0]].subject


CHECKS: tuple[Check, ...] = (
    # the workload cluster
    Check(("DR01",), kubeconfig_checks.check_address),
    Check(("DR02",), kubeconfig_checks.check_login),
    Check(("DR03",), kubeconfig_checks.check_ends),
    Check(("DR26",), cluster_state.check_apis),
    Check(("DR04",), permissions.check_permissions),
    Check(("DR04",), permissions.check_admission),
    Check(("DR05",), permissions.check_superfluous),
    Check(("DR06",), kubeconfig_checks.check_clocks),
    Check(("DR07", "DR09"), other_autoscalers.check_activity),
    Check(("DR08",), other_autoscalers.check_status),
    Check(("DR07", "DR09"), other_autoscalers.check_traces),
    Check(("DR15", "DR16"), node_templates.check_templates),
    Check(("DR17",), node_templates.check_architectures),
    Check(("DR18", "DR20"), drains.check_budgets),
    Check(("DR19",), drains.check_overlaps),
    Check(("DR21", "DR22"), drains.check_drains),
    Check(("DR23",), cluster_state.check_simulation),
    Check(("DR24",), cluster_state.check_provider_ids),
    Check(("DR25",), cluster_state.check_startup_taints),
    Check(("DR31",), cluster_state.check_expander),
    Check(("DR32",), cluster_state.check_removals),
    Check(("DR33",), cluster_state.check_spot),
    Check(("DR34",), cluster_state.check_zones),
    Check(("DR35",), cluster_state.check_machines),
    Check(("DR36",), descheduler.check_descheduler),
    # the vendors' accounts and groups
    Check(("DR10",), vendor_checks.check_claims),
    Check(("DR11",), vendor_checks.check_groups),
    Check(("DR12",), vendor_checks.check_bounds),
    Check(("DR13",), vendor_checks.check_quotas),
    Check(("DR11",), vendor_checks.check_permissions),
    # the deployment
    Check(("DR27",), deployment_checks.check_secrets),
    Check(("DR28",), deployment_checks.check_webhook),
    Check(("DR29",), deployment_checks.check_volume),
)
"""All checks, in the order of their results."""
CHECKED_WITHIN = 20.0
"""Seconds after which no further check begins."""
_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.UNASKED: 2, Severity.INFO: 3}
CONNECTION = "connection"
"""The subject of what cannot be reached. It is always told, and has no check of its own."""
_FAILED: tuple[type[Exception], ...] = (OutscalerError, OSError, *MALFORMED)


def examine(
    context: DoctorContext,
    only: Sequence[str] = (),
    within: float = CHECKED_WITHIN,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[Finding, ...]:
    """Return the findings, worst first, in the order of the checks. only: subjects or ids, empty
    for all. Raises BadInput for a word in `only` that no check has."""
    until = monotonic() + within
    fix = "correct the kubeconfig, the credentials or the network path, and repeat the command"
    findings = [
        Finding(
            "DR04" if place in ("workload", "management") else "DR11",
            Severity.ERROR,
            CONNECTION,
            f"{place}: {reason}",
            fix,
        )
        for place, reason in context.unreachable
    ]
    for check in _chosen(only):
        if monotonic() >= until:
            findings += _unasked(check, f"the time for checks, {within:.0f} s, was over")
            continue
        try:
            findings += list(check.run(context))
        except _FAILED as error:
            findings += _unasked(
                check, str(error) if isinstance(error, OutscalerError) else published_name(error)
            )
    return tuple(sorted(findings, key=lambda result: _RANK[result.severity]))


def subjects() -> tuple[str, ...]:
    """Return the subjects of all findings, in order."""
    return (CONNECTION, *dict.fromkeys(check.subject for check in CHECKS))


def _chosen(only: Sequence[str]) -> tuple[Check, ...]:
    if not only:
        return CHECKS
    known = {*subjects(), *(check_id for check in CHECKS for check_id in check.ids)}
    for word in only:
        if word not in known:
            raise BadInput(
                "--only",
                f"{word[:40]!r} is not a check",
                f"known: {', '.join(subjects())}, or an id",
            )
    return tuple(check for check in CHECKS if check.subject in only or set(check.ids) & set(only))


def _unasked(check: Check, reason: str) -> list[Finding]:
    fix = "repeat the command when that is corrected"
    return [
        finding(check_id, f"not checked: {reason}", severity=Severity.UNASKED, fix=fix)
        for check_id in check.ids
    ]
