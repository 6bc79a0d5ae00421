"""`outscaler apply FILE`: stores the document as the cluster's policy from the next tick on
and keeps the old version.

The write is conditional on the version it replaces, so two operators cannot overwrite each other's
policy unnoticed. Applying the same text again changes nothing and creates no version.

Before a policy becomes active, the doctor examines the cluster, and its errors refuse the policy
unless a person accepts them. The cluster is reached with --kubeconfig, otherwise with the
deployment's own secrets, as far as the operator may read them. Where neither is possible, nothing
is known, and the policy is stored with a warning.

Cluster Autoscaler deletes its status ConfigMap when it ends, and the functions may not make one. A
policy that becomes active therefore makes it again, with the rights of the operator.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import time
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cli.arguments import add_cluster_arguments
from chalicelib.cli.deployment_settings import settings_of
from chalicelib.cli.doctor.finding import DoctorContext, Severity
from chalicelib.cli.first_pass import LONGEST, PassWatch
from chalicelib.cli.kubeconfig_files import kubeconfig_of
from chalicelib.cli.migrate.machines_on_their_way import asked_for, on_their_way, sentence
from chalicelib.cli.output import emit, warn
from chalicelib.cli.pass_requests import request_pass
from chalicelib.cli.policy_files import load_document, place_of, read_document
from chalicelib.cli.store_access import add_table_argument, note, open_store, table_name
from chalicelib.cluster import objects
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import ClusterError, NotFound
from chalicelib.model.errors import BadInput, InputErrors, OutscalerError
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.admission import Purpose
from chalicelib.policy.compiled import compiled
from chalicelib.policy.load import digest
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.runtime.mode_guard import permitted

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy


_LONGEST_REASON = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE, --dry-run, --wait and --table."""
    parser.add_argument("file", metavar="FILE", help="policy document, or - for standard input")
    parser.add_argument("--dry-run", action="store_true", help="show the difference, store nothing")
    parser.add_argument(
        "--wait",
        action="store_true",
        help=f"wait for the next pass, for {LONGEST:.0f} s at most, and say how long it took",
    )
    add_gate_arguments(parser)
    add_table_argument(parser)


def add_gate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster and the consent."""
    add_cluster_arguments(
        parser,
        "the cluster, for the checks before mode active",
        "the cluster of Cluster API's objects, if another",
    )
    parser.add_argument(
        "--secret",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="a file that replaces a secret of the policy",
    )
    parser.add_argument(
        "--vpc",
        action="store_true",
        help="the functions run in a VPC that reaches private addresses",
    )
    parser.add_argument(
        "--accept-findings",
        metavar="REASON",
        default="",
        help=(
            "store an active policy in spite of errors of the doctor; the reason goes to the "
            "journal"
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Store the policy. Returns 0 if it is now in force, or already was; with --wait 1 where no
    pass makes a decision in time."""
    text = read_document(args.file)
    try:
        store = open_store(args)
        deployment = settings_of(store).deployment
    except Exception:
        load_document(
            text, place_of(args.file), Purpose.STORED
        )  # mistakes that are known without the tables come first
        raise
    policy, warnings = load_document(text, place_of(args.file), Purpose.STORED, deployment)
    for warning in warnings:
        warn(warning)
    name = policy.name
    watch = _watch(args, store, policy)
    current = store.policies.current(name)
    before, diff = current.version if current else 0, ""
    if current is not None and current.digest == digest(text):
        if not args.dry_run:
            _compile_again(store, current, policy, text)
            _switch_on(args, policy)
        result, version = "unchanged", current.version
    elif args.dry_run:
        result, version = "would change" if current else "would create", before + 1
        old = current.text.splitlines() if current else []
        lines = difflib.unified_diff(
            old, text.splitlines(), f"{name} version {before}", f"{name} as given", lineterm=""
        )
        diff = "\n".join(lines)
    else:
        version = _store(args, store, policy, text, current, deployment)
        result = "changed" if current else "created"
    data = {"name": name, "result": result, "version": version} | (
        {"diff": diff} if args.dry_run else {}
    )
    line = f"{name}: {result}, version {version}"
    if watch is None:
        emit(args.output, data, lambda: [f"{line}\n{diff}" if diff else line])
        return 0
    [first] = watch.passes()
    data["firstPass"] = {"seconds": first.seconds, "failure": first.failure}
    emit(args.output, data, lambda: [f"{line}\n{first.line()}"])
    return 0 if first.succeeded else 1


def _watch(args: argparse.Namespace, store: Store, policy: Policy) -> PassWatch | None:
    """Return the watch for --wait, from before the policy is stored; None where nothing is awaited.
    Raises BadInput for a policy under which no pass is made."""
    if not args.wait or args.dry_run:
        return None
    if not permitted(policy).plan:
        raise BadInput("--wait", f"{policy.name} has no passes in mode off", "leave --wait out")
    return PassWatch(store, (policy.name,), time.time, time.sleep)


def put_in_force(args: argparse.Namespace, store: Store, text: str, place: str) -> None:
    """Store a changed text of a policy as its next version, without output. args: of a command with
    the arguments of add_gate_arguments. Raises BadInput as `run` does."""
    deployment = settings_of(store).deployment
    policy, _ = load_document(text, place, Purpose.STORED, deployment)
    current = store.policies.current(policy.name)
    if current is None or current.digest != digest(text):
        _store(args, store, policy, text, current, deployment)


def _store(
    args: argparse.Namespace,
    store: Store,
    policy: Policy,
    text: str,
    stored_policy: StoredPolicy | None,
    deployment: Deployment,
) -> int:
    """Store a version and return its number. stored_policy: the one in force."""
    from chalicelib.store.errors import PolicyChanged

    old_policy, before = None, stored_policy.version if stored_policy else None
    if stored_policy is not None:
        with contextlib.suppress(BadInput):  # the functions cannot use it
            old_policy, _ = load_document(
                stored_policy.text, stored_policy.name, Purpose.STORED, deployment
            )
    becomes_active = permitted(policy).act and not (
        old_policy is not None and permitted(old_policy).act
    )
    context = _doctor_context(args, policy, deployment) if becomes_active else None
    facts = _accepted(args, context) if context is not None else {}
    _warn_of_own_machines(store, policy, old_policy)
    form = compiled(policy, text)
    try:
        version = store.policies.put(
            policy.name, text, digest(text), before, webhook=policy.webhook.secret, compiled=form
        )
    except PolicyChanged as error:
        raise BadInput(
            policy.name,
            f"another version was stored in the meantime ({error})",
            f"review it with outscaler get policy {policy.name}, then apply again",
        ) from None
    note(store, policy.name, "policy", {"version": version, "digest": digest(text), **facts})
    if context is not None:
        _make_status(context)
    _switch_on(args, policy)
    _wake(args, policy, old_policy)
    return version


def _compile_again(store: Store, stored_policy: StoredPolicy, policy: Policy, text: str) -> None:
    """Store the compiled form with the version in force, if that has none of this release.

    text: what the policy was read from. Its digest leaves line ends aside, so it may differ from
    the text that is stored, which then stays without a form.
    """
    from chalicelib.store.errors import StoreError

    form = compiled(policy, text)
    if form is None or text != stored_policy.text or form == stored_policy.compiled:
        return
    try:
        store.policies.compile_again(stored_policy, form)
    except StoreError as error:
        warn(
            f"{policy.name}: the compiled form could not be stored, functions read the text: "
            f"{error}"
        )


def _wake(args: argparse.Namespace, policy: Policy, old_policy: Policy | None) -> None:
    """Request the first pass under a new version. A policy that is not planned any more gets one as
    well, which takes back what passes have written on nodes."""
    from chalicelib.runtime.senders import NotSent

    planned, acted = permitted(policy).plan, old_policy is not None and permitted(old_policy).act
    if not planned and not acted:
        return
    try:
        woken = request_pass(table_name(args), policy.name)
    except NotSent as error:
        woken = False
        if planned:
            warn(
                f"{policy.name}: no pass could be requested ({error}); the first one follows "
                "within a minute"
            )
    if not woken and not planned:
        warn(
            f"{policy.name}: no pass could be requested; soft taints stay on nodes until outscaler "
            "uninstall"
        )


def _switch_on(args: argparse.Namespace, policy: Policy) -> None:
    """Enable the functions of the policy's providers, where the deployment disables unused ones."""
    from chalicelib.cli.deployments import switch_on

    for problem in switch_on(table_name(args), policy.providers):
        warn(problem)


# -- the doctor before mode active


def _accepted(args: argparse.Namespace, context: DoctorContext) -> dict[str, str]:
    """Return the ids of the doctor's errors that a person has accepted, and the reason,
    for the journal; {} where there are no errors. Raises InputErrors with the errors
    where no reason accepts them."""
    from chalicelib.cli.doctor.registry import examine

    lacking = on_their_way(context.snapshot) if context.snapshot is not None else {}
    if lacking:
        warn(
            f"{context.policy.name}: {sentence(lacking)}: Outscaler waits for them, as for nodes "
            "that it has bought"
        )
    errors = [finding for finding in examine(context) if finding.severity is Severity.ERROR]
    if not errors:
        return {}
    reason = args.accept_findings.strip()[:_LONGEST_REASON]
    if not reason:
        consent = "or accept it: --accept-findings REASON"
        raise InputErrors(
            tuple(
                BadInput(f"mode active: {finding.id}", finding.message, f"{finding.fix}; {consent}")
                for finding in errors
            )
        )
    for finding in errors:
        warn(f"accepted: {finding.id} {finding.message}")
    return {
        "accepted": ", ".join(dict.fromkeys(finding.id for finding in errors)),
        "reason": reason,
    }


def _warn_of_own_machines(store: Store, policy: Policy, old_policy: Policy | None) -> None:
    """Say which machines are on their way when a policy ceases to be active: another autoscaler
    that begins now does not know that they come."""
    if permitted(policy).act or old_policy is None or not permitted(old_policy).act:
        return
    from chalicelib.store.errors import StoreError

    try:
        bought = asked_for(store.memory.look(policy.name))
    except StoreError as error:
        warn(f"{policy.name}: whether machines are on their way is not known: {error}")
        return
    if bought:
        rest = "start another autoscaler when they are nodes, or it buys them a second time"
        warn(f"{policy.name}: {sentence(bought)}: {rest}")


def _doctor_context(
    args: argparse.Namespace, policy: Policy, deployment: Deployment
) -> DoctorContext | None:
    if args.kubeconfig is None and args.context is not None:
        args.kubeconfig = kubeconfig_of(os.environ)
    if args.kubeconfig is not None:
        from chalicelib.cli.commands.doctor import context_of

        doctor_args = argparse.Namespace(
            **vars(args) | {"as_person": None, "probe_writes": False, "webhook": ""}
        )
        return context_of(doctor_args, policy, time.time, deployment)
    try:
        return msgspec.structs.replace(_context_of_deployment(policy, deployment), vpc=args.vpc)
    except OutscalerError as error:
        warn(f"{policy.name}: not checked before mode active: {error}; give --kubeconfig FILE")
        return None


def _make_status(context: DoctorContext) -> None:
    """Make the status ConfigMap where there is none, and name the command
    where that is not permitted."""
    options = context.policy.options
    namespace, name = options.namespace, options.status_config_map_name
    clients = [client for client in (context.person, context.workload) if client is not None]
    if not options.write_status_configmap or not clients:
        return
    try:
        objects.get_config_map(clients[-1], namespace, name)
    except NotFound:
        pass
    except ClusterError:
        return  # the doctor's findings say so
    else:
        return
    for client in clients:
        with contextlib.suppress(ClusterError):
            objects.make_config_map(client, namespace, name)
            warn(
                f"{context.policy.name}: ConfigMap {namespace}/{name} was not there and is made "
                "again"
            )
            return
    command = f"kubectl -n {namespace} create configmap {name}"
    warn(
        f"{context.policy.name}: ConfigMap {namespace}/{name} is not there, so no status is "
        f"written: {command}"
    )


def _context_of_deployment(policy: Policy, deployment: Deployment) -> DoctorContext:
    """Connect as the functions do. Raises OutscalerError where the secrets or
    the cluster cannot be read."""
    from chalicelib.aws.secrets_manager import SecretsManagerReader
    from chalicelib.cli.commands.doctor import current, planned
    from chalicelib.cli.doctor.needed_rules import management_access
    from chalicelib.cluster.connect import connect
    from chalicelib.cluster.live_cluster import read_live_cluster
    from chalicelib.cluster.node_groups import read_node_groups
    from chalicelib.policy.secret_names import observing
    from chalicelib.providers.kit.services import ProviderServices
    from chalicelib.providers.registry import providers

    read_secret, now = SecretsManagerReader(), time.time()

    def connected(access: KubernetesAccess) -> KubeClient:
        return connect(access, read_secret, clock=time.time)

    kube = connected(policy.kubernetes)
    services = ProviderServices(connect=connected, deployment=deployment)
    clouds = providers(observing(policy), kube, read_secret, time.time, services)
    namespace = policy.options.namespace
    snapshot = read_live_cluster(
        policy.name, kube, lambda nodes: read_node_groups(clouds, nodes), now, namespace=namespace
    )
    secret, management = policy.kubernetes.kubeconfig_secret, management_access(policy)
    return DoctorContext(
        policy=policy,
        clock=time.time,
        read_secret=read_secret,
        workload=kube,
        management=None if management is None else connected(management),
        person=current(kube),
        snapshot=snapshot,
        providers=tuple((provider.name, provider) for provider in clouds),
        kubeconfig_text=read_secret(secret) if secret else "",
        plan=planned(snapshot, policy, now),
    )
