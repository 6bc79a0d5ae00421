"""`outscaler apply FILE`: stores the document as the cluster's policy from the next tick on and keeps the old version.

The write is conditional on the version it replaces, so two operators cannot overwrite each other's policy unnoticed.
Applying the same text again changes nothing and creates no version.
"""

from __future__ import annotations

import argparse
import difflib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chalicelib.command.deployment_settings import settings_of
from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.command.output import emit, warn
from chalicelib.command.policy_files import load_document, place_of, read_document
from chalicelib.command.store_access import add_table_argument, note, open_store, table_name
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.kube.client import KubeClient
from chalicelib.model.errors import BadInput, InputErrors, OutscalerError
from chalicelib.model.policy import KubernetesAccess, Policy
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.admission import Purpose
from chalicelib.policy.compiled import compiled
from chalicelib.policy.load import digest

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE, --dry-run and --table."""
    parser.add_argument("file", metavar="FILE", help="policy document, or - for standard input")
    parser.add_argument("--dry-run", action="store_true", help="show the difference, store nothing")
    add_gate_arguments(parser)
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Store the policy. Returns 0 if it is now in force, or already was."""
    text = read_document(args.file)
    store, deployment = _deployed(args, text)
    policy, warnings = load_document(text, place_of(args.file), Purpose.STORED, deployment)
    for warning in warnings:
        warn(warning)
    current = store.policies.current(policy.name)
    before = current.version if current else None
    if current is not None and current.digest == digest(text):
        if not args.dry_run:
            _compile_again(store, current, policy, text)
            _switch_on(args, policy)
        return _say(args, policy.name, "unchanged", current.version)
    if args.dry_run:
        diff = _difference(current.text if current else "", text, policy.name, before)
        return _say(args, policy.name, "would change" if current else "would create", (before or 0) + 1, diff)
    version = _store(args, store, policy, text, current, deployment)
    return _say(args, policy.name, "changed" if current else "created", version)


def _deployed(args: argparse.Namespace, text: str) -> tuple[Store, Deployment]:
    """Return the deployment's tables, and what its functions permit. Where the tables cannot be read, the mistakes of
    the document that are known without them are raised first."""
    try:
        store = open_store(args)
        return store, settings_of(store).deployment
    except Exception:
        load_document(text, place_of(args.file), Purpose.STORED)
        raise


def put_in_force(args: argparse.Namespace, store: Store, text: str, place: str) -> int:
    """Store a changed text of a policy as its next version and return the number, without output. args: of a command
    of add_gate_arguments. Raises BadInput as `run` does."""
    deployment = settings_of(store).deployment
    policy, _ = load_document(text, place, Purpose.STORED, deployment)
    current = store.policies.current(policy.name)
    if current is not None and current.digest == digest(text):
        return current.version
    return _store(args, store, policy, text, current, deployment)


def _store(
    args: argparse.Namespace,
    store: Store,
    policy: Policy,
    text: str,
    stored_policy: StoredPolicy | None,
    deployment: Deployment,
) -> int:
    from chalicelib.store.errors import PolicyChanged

    accepted = check_before_active(args, policy, _readable(stored_policy, deployment), deployment)
    before = stored_policy.version if stored_policy else None
    try:
        version = store.policies.put(
            policy.name, text, digest(text), before, webhook=policy.webhook.secret, compiled=compiled(policy, text)
        )
    except PolicyChanged as error:
        raise BadInput(
            policy.name,
            f"another version was stored in the meantime ({error})",
            f"review it with outscaler get policy {policy.name}, then apply again",
        ) from None
    facts: dict[str, str | int | float | bool] = {"version": version, "digest": digest(text)}
    if accepted.reason:
        facts |= {"accepted": ", ".join(accepted.findings), "reason": accepted.reason}
    note(store, policy.name, "policy", facts)
    _switch_on(args, policy)
    return version


def _readable(stored_policy: StoredPolicy | None, deployment: Deployment) -> Policy | None:
    """Return the policy in force; None where there is none, or where the functions cannot use it."""
    if stored_policy is None:
        return None
    try:
        return load_document(stored_policy.text, stored_policy.name, Purpose.STORED, deployment)[0]
    except BadInput:
        return None


def _compile_again(store: Store, stored_policy: StoredPolicy, policy: Policy, text: str) -> None:
    """Store the compiled form with the version in force, if that has none of this release.

    text: what the policy was read from. Its digest leaves line ends aside, so it may differ from the text that is
    stored, which then stays without a form.
    """
    form = compiled(policy, text)
    if form is None or text != stored_policy.text or form == stored_policy.compiled:
        return
    from chalicelib.store.errors import StoreError

    try:
        store.policies.compile_again(stored_policy, form)
    except StoreError as error:
        warn(f"{policy.name}: the compiled form could not be stored, functions read the text: {error}")


def _switch_on(args: argparse.Namespace, policy: Policy) -> None:
    """Enable the functions of the policy's providers, where the deployment disables unused ones."""
    from chalicelib.command.deployments import switch_on

    for problem in switch_on(table_name(args), policy.providers):
        warn(problem)


def _difference(old: str, new: str, name: str, before: int | None) -> str:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"{name} version {before or 0}", f"{name} as given", lineterm=""
    )
    return "\n".join(lines)


def _say(args: argparse.Namespace, name: str, result: str, version: int, diff: str = "") -> int:
    data = {"name": name, "result": result, "version": version} | ({"diff": diff} if args.dry_run else {})
    text = f"{name}: {result}, version {version}"
    emit(args.output, data, lambda: [f"{text}\n{diff}" if diff else text])
    return 0


_LONGEST_REASON = 500


class GateResult(msgspec.Struct, frozen=True):
    """What was accepted, for the journal. findings: ids of errors; reason: empty where there were none."""

    findings: tuple[str, ...] = ()
    reason: str = ""


def add_gate_arguments(parser: argparse.ArgumentParser) -> None:
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


def check_before_active(
    args: argparse.Namespace, policy: Policy, old_policy: Policy | None, deployment: Deployment
) -> GateResult:
    """Return what was accepted. deployment: what the functions permit policies to name. Raises InputErrors with the
    doctor's errors where no reason accepts them."""
    if not permitted(policy).act or (old_policy is not None and permitted(old_policy).act):
        return GateResult()
    from chalicelib.command.doctor.registry import examine

    context = _gate_context(args, policy, deployment)
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


def _gate_context(args: argparse.Namespace, policy: Policy, deployment: Deployment) -> DoctorContext | None:
    if args.kubeconfig is not None:
        from chalicelib.command.commands.doctor import context_of

        wanted = argparse.Namespace(**vars(args) | {"as_person": None, "probe_writes": False, "webhook": ""})
        return context_of(wanted, policy, time.time, deployment)
    try:
        return msgspec.structs.replace(_context_of_deployment(policy, deployment), vpc=args.vpc)
    except OutscalerError as error:
        text = f"{policy.name}: not checked before mode active: {error}"
        warn(f"{text}; give --kubeconfig FILE")
        return None


def _context_of_deployment(policy: Policy, deployment: Deployment) -> DoctorContext:
    """Connect as the functions do. Raises OutscalerError where the secrets or the cluster cannot be read."""
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.command.commands.doctor import current, planned
    from chalicelib.command.doctor.needed_rules import management_access
    from chalicelib.kube.connect import connect
    from chalicelib.policy.read_credentials import observing
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
