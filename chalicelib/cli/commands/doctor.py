"""`outscaler doctor`: checks a cluster, its vendors and its secrets before anything
acts. It changes nothing.

--kubeconfig and --secret are what the functions will use, so that rights are asked for with them;
--as-person is a wider kubeconfig for looking around.
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.deployment_settings import login_here, settings_here, settings_of
from chalicelib.cli.doctor.finding import Finding, Severity
from chalicelib.cli.kubeconfig_files import kubeconfig_of, read_kubeconfig
from chalicelib.cli.live_cluster import (
    add_secret_files,
    connected_by_file,
    connected_management,
    open_cluster,
    secret_files,
)
from chalicelib.cli.output import Block, Table, emit, progress, warn
from chalicelib.cli.policy_files import load_document, place_of, read_document
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.settings.cluster_policy import Policy

if TYPE_CHECKING:
    from chalicelib.cli.doctor.finding import DoctorContext
    from chalicelib.cluster.client import KubeClient
    from chalicelib.model.plan import Plan
    from chalicelib.model.snapshot import Snapshot

_FINDING = 1
_UNNEEDED = 660.0  # seconds: longer than the default time after which an unneeded node goes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the policy, the kubeconfigs, the secrets, and what to check."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        required=True,
        help="the policy document, or - for standard input",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="the kubeconfig that the functions will use"
    )
    parser.add_argument(
        "--context",
        metavar="NAME",
        help=(
            "its context, if not the current one; without --kubeconfig, of $KUBECONFIG or "
            "~/.kube/config"
        ),
    )
    parser.add_argument(
        "--management-kubeconfig",
        metavar="FILE",
        type=Path,
        help="the cluster of Cluster API's objects, if another",
    )
    add_secret_files(parser)
    parser.add_argument(
        "--as-person",
        metavar="FILE",
        type=Path,
        help=(
            "your own kubeconfig, for leases and workloads (default: your current one, if it is of "
            "the same cluster)"
        ),
    )
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="subjects or ids, such as rbac,pdb,DR07"
    )
    parser.add_argument(
        "--probe-writes",
        action="store_true",
        help="ask admission with dry runs, which may call webhooks",
    )
    parser.add_argument(
        "--webhook",
        default="",
        metavar="URL",
        help="also send a signed event to the deployment's API",
    )
    parser.add_argument(
        "--vpc",
        action="store_true",
        help="the functions run in a VPC that reaches private addresses",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 for warnings, too")
    parser.add_argument(
        "--table",
        default="",
        metavar="NAME",
        help="also compare with the other policies of this deployment's table",
    )
    parser.add_argument(
        "--policy-table",
        default="",
        metavar="NAME",
        help="its policy table, if it has another name",
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings. Returns 1 for an error, or with --strict for a warning,
    otherwise 0. Raises BadInput."""
    from chalicelib.cli.doctor.registry import examine

    if args.kubeconfig is None:
        if args.context is None:
            raise BadInput(
                "outscaler doctor", "no cluster is named", "add --kubeconfig FILE or --context NAME"
            )
        args.kubeconfig = kubeconfig_of(os.environ)
    text = read_document(args.policy)
    deployment = _deployment(args)
    policy, warnings = load_document(text, place_of(args.policy), deployment=deployment)
    for warning in warnings:
        warn(warning)
    with progress("checking"):
        context = context_of(args, policy, time.time, deployment)
        findings = examine(context, [word.strip() for word in args.only.split(",") if word.strip()])
    emit(
        args.output,
        [as_data(finding) for finding in findings],
        lambda: _blocks(findings, args.policy),
    )
    return exit_code(findings, strict=args.strict)


def context_of(
    args: argparse.Namespace, policy: Policy, clock: Callable[[], float], deployment: Deployment
) -> DoctorContext:
    """Connect as the deployment permits, and read the cluster once. What cannot be
    reached is in `unreachable`."""
    from chalicelib.cli.doctor.finding import DoctorContext

    unreachable: list[tuple[str, str]] = []

    def reach(place: str, connect: Callable[[], Any]) -> Any:
        try:
            return connect()
        except OutscalerError as error:
            unreachable.append((place, str(error)))
            return None

    kube: KubeClient | None = reach(
        "workload", lambda: connected_by_file(args.kubeconfig, args.context or "")
    )
    management: KubeClient | None = reach("management", lambda: connected_management(args, policy))
    person = (
        reach("--as-person", lambda: connected_by_file(args.as_person, ""))
        if args.as_person
        else current(kube)
    )
    opened = (
        reach("providers", lambda: open_cluster(args, policy, deployment=deployment))
        if kube is not None
        else None
    )
    if opened is None and kube is not None:
        opened = reach("workload", lambda: open_cluster(args, policy, providers=False))
    snapshot = reach("workload", lambda: opened.read(clock())) if opened is not None else None
    return DoctorContext(
        policy=policy,
        clock=clock,
        read_secret=secret_files(args.secret, policy),
        workload=kube if snapshot is not None else None,
        management=management,
        person=person,
        snapshot=snapshot,
        providers=tuple((provider.name, provider) for provider in opened.providers)
        if opened is not None
        else (),
        unreachable=tuple(unreachable),
        kubeconfig_text=_text(args.kubeconfig),
        probe=args.probe_writes,
        vpc=args.vpc,
        webhook_url=args.webhook,
        policies=_policies(args, policy, deployment),
        plan=planned(snapshot, policy, clock()) if snapshot is not None else None,
        replaced=_replaced(args, policy),
        api=login.api if (login := login_here()) is not None else "",
    )


def _replaced(args: argparse.Namespace, policy: Policy) -> frozenset[str]:
    """Return the names of the secrets whose kubeconfigs are given as files."""
    of_management = (
        policy.providers.get("clusterapi", {}) if args.management_kubeconfig is not None else {}
    )
    secrets = (of_management.get(key, "") for key in ("kubeconfigSecret", "observeSecret"))
    return frozenset({policy.kubernetes.kubeconfig_secret, *secrets} - {""})


def current(kube: KubeClient | None) -> KubeClient | None:
    """Return a client of the current kubeconfig, if it is of the same cluster; None otherwise."""
    try:
        own = connected_by_file(kubeconfig_of(os.environ), "")
    except OutscalerError:
        return None
    return own if kube is not None and own.identity == kube.identity else None


def planned(snapshot: Snapshot, policy: Policy, now: float) -> Plan:
    """Return the plan in which every unneeded node's time is over."""
    from chalicelib.model.memory import Memory
    from chalicelib.plan.planner import plan_cluster

    return plan_cluster(
        snapshot, policy, Memory(), now, 0, assume_unneeded_for=_UNNEEDED, wait=False
    )[0]


def _text(path: Path) -> str:
    try:
        return read_kubeconfig(path)
    except (OSError, UnicodeDecodeError):
        return ""


def _deployment(args: argparse.Namespace) -> Deployment:
    """Return what the functions permit policies to name: as the table says it, if one is given."""
    from chalicelib.cli.store_access import open_store

    return settings_of(open_store(args)).deployment if args.table else settings_here().deployment


def _policies(
    args: argparse.Namespace, policy: Policy, deployment: Deployment
) -> tuple[Policy, ...]:
    """Return the other policies of the table; those that this release cannot read are
    left out with a warning."""
    if not args.table:
        return ()
    from chalicelib.cli.store_access import open_store

    others = []
    for stored in open_store(args).policies.all_current():
        if stored.name == policy.name:
            continue
        try:
            others.append(load_document(stored.text, stored.name, deployment=deployment)[0])
        except OutscalerError as error:
            warn(f"{stored.name}: not compared: {error}")
    return tuple(others)


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """Return 1 for an error, or with strict for a warning; otherwise 0."""
    severities = {finding.severity for finding in findings}
    return (
        _FINDING
        if Severity.ERROR in severities or (strict and Severity.WARNING in severities)
        else 0
    )


def as_data(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON."""
    return {**msgspec.to_builtins(finding), "url": finding.url}


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return the findings as a table."""
    rows = (
        (str(finding.severity), finding.id, finding.subject, finding.message)
        for finding in findings
    )
    return Table(("severity", "id", "subject", "finding"), tuple(rows), empty="no findings")


_WORDS = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("note", "notes"),
    Severity.UNASKED: ("unknown", "unknown"),
}


def _blocks(findings: Sequence[Finding], file: str) -> list[Block]:
    fixes = {
        finding.fix: finding.id
        for finding in findings
        if finding.severity in (Severity.ERROR, Severity.WARNING)
    }
    blocks: list[Block] = [findings_table(findings)]
    if fixes:
        lines = [
            f"{finding_id}  {fix}".replace("\n", "\n      ") for fix, finding_id in fixes.items()
        ]
        blocks.append("\n".join(["What to do:", *lines]))
    counts = Counter(finding.severity for finding in findings)
    counted = [
        f"{counts[severity]} {words[counts[severity] > 1]}"
        for severity, words in _WORDS.items()
        if counts[severity]
    ]
    following = f"outscaler apply {shlex.quote(file)}"
    if counts[Severity.ERROR]:
        following = "correct the errors, and repeat the command"
    blocks.append(f"{', '.join(counted) or 'no findings'}. Next: {following}")
    return blocks
