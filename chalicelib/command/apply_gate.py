"""The doctor before a policy becomes active: `outscaler apply` refuses its errors, unless a person accepts them.

The cluster is reached with --kubeconfig, otherwise with the deployment's own secrets, as far as the operator may read
them. Where neither is possible, nothing is known, and the policy is stored with a warning.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import msgspec

from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.command.output import warn
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.kube.client import KubeClient
from chalicelib.model.errors import BadInput, InputErrors, OutscalerError
from chalicelib.model.policy import KubernetesAccess, Policy
from chalicelib.model.policy_permissions import Deployment

_LONGEST_REASON = 500


class GateResult(msgspec.Struct, frozen=True):
    """What was accepted, for the journal. findings: ids of errors; reason: empty where there were none."""

    findings: tuple[str, ...] = ()
    reason: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster and the consent."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="the cluster, for the checks before mode active"
    )
    parser.add_argument("--context", help="the kubeconfig's context, if not its current one")
    parser.add_argument(
        "--management-kubeconfig", metavar="FILE", type=Path, help="the cluster of Cluster API's objects, if another"
    )
    parser.add_argument(
        "--secret", metavar="NAME=FILE", action="append", default=[], help="a file that replaces a secret of the policy"
    )
    parser.add_argument("--vpc", action="store_true", help="the functions run in a VPC that reaches private addresses")
    parser.add_argument(
        "--accept-findings",
        metavar="REASON",
        default="",
        help="store an active policy in spite of errors of the doctor; the reason goes to the journal",
    )


def check(args: argparse.Namespace, policy: Policy, old_policy: Policy | None, deployment: Deployment) -> GateResult:
    """Return what was accepted. deployment: what the functions permit policies to name. Raises InputErrors with the
    doctor's errors where no reason accepts them."""
    if not permitted(policy).act or (old_policy is not None and permitted(old_policy).act):
        return GateResult()
    from chalicelib.command.doctor.registry import examine

    context = _context(args, policy, deployment)
    if context is None:
        return GateResult()
    errors = [each for each in examine(context) if each.severity is Severity.ERROR]
    if not errors:
        return GateResult()
    if not args.accept_findings.strip():
        raise InputErrors(tuple(_refusal(each) for each in errors))
    for each in errors:
        warn(f"accepted: {each.id} {each.message}")
    return GateResult(tuple(dict.fromkeys(each.id for each in errors)), args.accept_findings.strip()[:_LONGEST_REASON])


def _refusal(finding: Finding) -> BadInput:
    remedy = f"{finding.fix}; or accept it: --accept-findings REASON"
    return BadInput(f"mode active: {finding.id}", finding.message, remedy)


def _context(args: argparse.Namespace, policy: Policy, deployment: Deployment) -> DoctorContext | None:
    if args.kubeconfig is not None:
        from chalicelib.command.commands.doctor import context_of

        wanted = argparse.Namespace(**vars(args) | {"as_person": None, "probe_writes": False, "webhook": ""})
        return context_of(wanted, policy, time.time, deployment)
    try:
        return msgspec.structs.replace(_deployed(policy, deployment), vpc=args.vpc)
    except OutscalerError as error:
        text = f"{policy.name}: not checked before mode active: {error}"
        warn(f"{text}; give --kubeconfig FILE")
        return None


def _deployed(policy: Policy, deployment: Deployment) -> DoctorContext:
    """Connect as the functions do. Raises OutscalerError where the secrets or the cluster cannot be read."""
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.command.commands.doctor import current, planned
    from chalicelib.command.doctor.needed_rules import management_access
    from chalicelib.kube.connect import connect
    from chalicelib.policy.secret_names import observing
    from chalicelib.providers.registry import providers
    from chalicelib.providers.services import ProviderServices
    from chalicelib.snapshot.live_cluster import read_live_cluster
    from chalicelib.snapshot.node_groups import read_node_groups

    read = SecretsManagerReader()

    def connected(access: KubernetesAccess) -> KubeClient:
        return connect(access, read, clock=time.time)

    kube = connected(policy.kubernetes)
    services = ProviderServices(connect=connected, deployment=deployment)
    found = providers(observing(policy), kube, read, time.time, services)
    now = time.time()
    snapshot = read_live_cluster(
        policy.name,
        kube,
        lambda nodes: read_node_groups(found, nodes),
        now,
        namespace=policy.options.namespace,
    )
    name, management = policy.kubernetes.kubeconfig_secret, management_access(policy)
    return DoctorContext(
        policy=policy,
        clock=time.time,
        read_secret=read,
        workload=kube,
        management=None if management is None else connected(management),
        person=current(kube),
        snapshot=snapshot,
        kubeconfig_text=read(name) if name else "",
        plan=planned(snapshot, policy, now),
    )
