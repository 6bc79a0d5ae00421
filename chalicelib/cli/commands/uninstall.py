"""`outscaler uninstall CLUSTER`: takes Outscaler out of a cluster, so that
nothing of it stays there.

Its steps are in an order in which nothing is written again: the mode becomes off, open operations
end, the lease keeps passes away, then taints, cordons, annotations, marks and tokens are removed,
claims are released, and the policy is archived. It can be repeated. It never deletes a machine.
Without --yes it shows what it would do.
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from chalicelib import DOCS
from chalicelib.cli.arguments import add_cluster_arguments
from chalicelib.cli.deployment_settings import on_this_machine, settings_of
from chalicelib.cli.kubeconfig_files import kubeconfig_of
from chalicelib.cli.live_cluster import add_secret_files, connected_by_file, secret_files
from chalicelib.cli.output import Block, Table, emit, warn
from chalicelib.cli.store_access import add_table_argument, note, open_store
from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import declaration_in_name, is_own_name, short_declaration
from chalicelib.model.secret import SecretNotGiven
from chalicelib.policy.managed_pool_validation import SUPPORTED
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy

if TYPE_CHECKING:
    from chalicelib.cli.cluster_cleanup import ClusterCleanup, Leftover, NotRemoved
    from chalicelib.providers.kit.base import PoolMaker
    from chalicelib.store import Lease, Store, StoredPolicy

LONGEST = 25 * 60.0
"""Seconds to wait for open operations, which is longer than any of them may
take without a new attempt."""
_PAUSE = 5.0
_LEASE = 900.0
_MANIFESTS = "outscaler manifests"
_HAND_OVER = "hand-over"
_KEYS = ("credentialsSecret", "cloudConfigSecret")
"""Settings of vendors that name what is needed to take marks off."""
_ATTEMPTS = 3


class UninstallClock(msgspec.Struct, frozen=True):
    """now: epoch seconds. sleep: waits for so many seconds."""

    now: Callable[[], float]
    sleep: Callable[[float], None]


class ManagedLeftover(msgspec.Struct, frozen=True):
    """A node group that Outscaler has made, and stays at the vendor. nodes: its size."""

    provider: str
    group: str
    nodes: int


class Uninstalled(msgspec.Struct, frozen=True, rename="camel"):
    """The result. done: whether anything was changed. version: of the archived policy, 0 where
    there was none. claims: released groups. managed: groups of managed pools. unmarked: what has
    lost their marks at the vendors."""

    name: str
    done: bool
    version: int
    claims: tuple[str, ...]
    cluster: tuple[Leftover, ...]
    failures: tuple[NotRemoved, ...]
    managed: tuple[ManagedLeftover, ...] = ()
    unmarked: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster, its kubeconfigs, and what to leave."""
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    parser.add_argument(
        "--yes", action="store_true", help="do it; without it, only show what would be done"
    )
    add_cluster_arguments(
        parser,
        "the cluster, with rights to patch nodes (default: $KUBECONFIG, otherwise ~/.kube/config)",
        "the cluster of Cluster API's objects, if another",
    )
    parser.add_argument(
        "--without-cluster", action="store_true", help="the cluster does not exist any more"
    )
    parser.add_argument(
        "--foreign",
        action="store_true",
        help=(
            "also remove taints of removals that another autoscaler has left behind; stop that "
            "autoscaler first"
        ),
    )
    parser.add_argument(
        "--keep-soft-taints",
        action="store_true",
        help="leave soft taints to another autoscaler that is at work",
    )
    parser.add_argument(
        "--managed",
        choices=("keep", _HAND_OVER),
        default="",
        help=(
            "what becomes of node groups that Outscaler has made: keep leaves them to you, "
            "hand-over takes their marks off at the vendor and prints nodeGroups that manage them"
        ),
    )
    add_secret_files(parser)
    parser.add_argument(
        "--keep-status", action="store_true", help="do not name the status ConfigMap as a remainder"
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Uninstall, or show what would be done. Returns 0, or 1 where something could not be removed.
    Raises BadInput for a cluster that the table does not have."""
    return uninstall(args, UninstallClock(time.time, time.sleep))


def uninstall(args: argparse.Namespace, clock: UninstallClock) -> int:
    """See run."""
    name, store = args.name, open_store(args)
    current = store.policies.current(name)
    latest = current or next(iter(store.policies.history(name, 1)), None)
    if latest is None:
        raise BadInput(name, "no such cluster", "outscaler get clusters lists them")
    policy, prefix = _policy_of(latest), settings_of(store).deployment.secret_prefix
    cleanup = None if args.without_cluster else _cleanup(args, policy)
    own = _own_groups(store, name, policy)
    managed = tuple(group for group in own if group.nodes)
    if args.yes and managed and not args.managed:
        nodes = sum(group.nodes for group in managed)
        problem = f"{len(managed)} node groups that Outscaler has made have {nodes} nodes"
        remedy = "add --managed keep, or --managed hand-over; or take them out of managedPools and "
        raise BadInput(name, problem, f"{remedy}empty them with outscaler pools drain {name}")
    makers = _makers(args, store, policy, own) if args.managed == _HAND_OVER else {}
    if args.yes:
        if current is not None:
            current = _switched_off(store, current, policy)
            _wait_for_operations(store, name, clock)
        lease = _lease(store, name, clock)
        try:
            objects = cleanup.removed() if cleanup else ()
            claims = [claim for claim in store.group_ownership.all() if claim.owner == name]
            store.group_ownership.release(name, [(claim.provider, claim.key) for claim in claims])
            unmarked, failures = _without_marks(makers, clock, done=True)
            if current is not None and not (failures or (cleanup and cleanup.failures)):
                store.policies.archive(current)
            store.pauses.change(name, lambda _: ())
            note(store, name, "uninstalled", {"objects": len(objects)}, at=clock.now())
        finally:
            store.leases.release(lease)
    else:
        objects = cleanup.found() if cleanup else ()
        claims = [claim for claim in store.group_ownership.all() if claim.owner == name]
        unmarked, failures = _without_marks(makers, clock, done=False)
    result = Uninstalled(
        name=name,
        done=args.yes,
        version=current.version if current else 0,
        claims=tuple(f"{claim.provider}#{claim.key}" for claim in claims),
        cluster=objects,
        failures=(*(cleanup.failures if cleanup else ()), *failures),
        managed=managed,
        unmarked=tuple(unmarked),
    )
    rest = _remainder(args, policy, result, prefix)
    emit(
        args.output,
        msgspec.to_builtins(result) | {"remains": rest},
        lambda: [*_blocks(result, rest, _repeated(args)), *_managed_blocks(result, args.managed)],
    )
    return 1 if result.failures else 0


def _own_groups(store: Store, name: str, policy: Policy | None) -> tuple[ManagedLeftover, ...]:
    """Return the groups of managed pools, by the last pass."""
    pools = policy.managed_pools if policy is not None else ()
    vendors = [vendor for vendor in SUPPORTED if policy is not None and vendor in policy.providers]
    only = vendors[0] if len(vendors) == 1 else ""
    declared = {short_declaration(pool.name): pool.provider for pool in pools}
    seen = {group.group: group.provider for group in store.gauge_rings.overview(name).groups}
    return tuple(
        ManagedLeftover(
            seen.get(group) or declared.get(declaration_in_name(group), only), group, memory.target
        )
        for group, memory in sorted(store.memory.look(name).groups.items())
        if is_own_name(group)
    )


def _makers(
    args: argparse.Namespace, store: Store, policy: Policy | None, own: Iterable[ManagedLeftover]
) -> dict[str, PoolMaker]:
    """Connect to the vendors of own groups, with the keys of --secret. Raises BadInput if one is
    missing; where nothing is to be done yet, that is a warning."""
    from chalicelib.providers.kit.base import PoolMaker
    from chalicelib.providers.kit.services import ProviderServices
    from chalicelib.providers.registry import providers

    if policy is None or args.without_cluster:
        problem = "needs the cluster, and a policy that can be read"
        raise BadInput(f"--managed {_HAND_OVER}", problem, "write --managed keep")
    read_secret = secret_files(args.secret, policy)
    named = {group.provider for group in own} | {pool.provider for pool in policy.managed_pools}
    vendors = [name for name in SUPPORTED if name in policy.providers and named & {"", name}]
    only = {name: policy.providers[name] for name in vendors}
    try:
        for settings in only.values():
            for key in _KEYS:
                if secret := settings.get(key):
                    read_secret(secret)
    except SecretNotGiven as error:
        if args.yes:
            raise
        warn(str(error))
        return {}
    kube = connected_by_file(args.kubeconfig or kubeconfig_of(os.environ), args.context or "")
    services = ProviderServices(deployment=on_this_machine(settings_of(store).deployment))
    policy = msgspec.structs.replace(policy, providers=only)
    built = providers(policy, kube, read_secret, time.time, services)
    return {maker.name: maker for maker in built if isinstance(maker, PoolMaker)}


def _without_marks(
    makers: Mapping[str, PoolMaker], clock: UninstallClock, *, done: bool
) -> tuple[list[str], list[NotRemoved]]:
    """Take the cluster's marks off at the vendors. Returns what bore one, and what still does.
    done: False: only look."""
    from chalicelib.cli.cluster_cleanup import NotRemoved
    from chalicelib.providers.kit.errors import NotFound, ProviderError

    titles, failures = [], []
    for vendor, maker in makers.items():
        try:
            marks = maker.own_marks()
        except ProviderError as error:
            failures.append(NotRemoved(vendor, "all marks", str(error)))
            continue
        for title, take_off in marks.items():
            try:
                if done:
                    _attempt(take_off, clock)
                titles.append(title)
            except NotFound:
                pass
            except ProviderError as error:
                failures.append(NotRemoved(vendor, title, str(error)))
    return titles, failures


def _attempt(change: Callable[[], None], clock: UninstallClock) -> None:
    """Make a change that may be repeated. Raises ProviderError."""
    from chalicelib.providers.kit.errors import Throttled, Transient

    for _ in range(_ATTEMPTS - 1):
        try:
            return change()
        except (Throttled, Transient) as error:
            clock.sleep(error.retry_after or 1.0)
    return change()


def _managed_blocks(uninstalled: Uninstalled, managed: str) -> list[Block]:
    """Return what becomes of groups that Outscaler has made. managed: the argument."""
    if not uninstalled.managed:
        return []
    if managed == _HAND_OVER:
        lines = ["Groups that Outscaler has made, for spec.nodeGroups of another policy:"]
        for group in uninstalled.managed:
            provider = f", provider: {group.provider}" if group.provider else ""
            lines.append(f"  - {{id: {group.group}{provider}, min: 0, max: {group.nodes}}}")
    else:
        lines = ["Groups that Outscaler has made stay at the vendor:"]
        lines += [f"  {group.group}: {group.nodes} nodes" for group in uninstalled.managed]
    return ["\n".join(lines)]


def _policy_of(latest_policy: StoredPolicy) -> Policy | None:
    """Return a stored policy; None where this release cannot read it."""
    from chalicelib.policy.load import load

    try:
        return load(
            latest_policy.text, place=f"{latest_policy.name} version {latest_policy.version}"
        )[0]
    except BadInput as error:
        warn(f"{error}; the policy is archived without being read")
        return None


def _cleanup(args: argparse.Namespace, policy: Policy | None) -> ClusterCleanup:
    """Return what looks for and removes the rest, in the places that the policy uses; everywhere
    where there is none that can be read. Raises BadInput where a kubeconfig is missing."""
    from chalicelib.cli.cluster_cleanup import ClusterCleanup
    from chalicelib.cli.doctor.needed_rules import capi_namespaces, makes_tokens, management_access

    management = (
        connected_by_file(args.management_kubeconfig, "") if args.management_kubeconfig else None
    )
    if management is None and policy is not None and management_access(policy) is not None:
        raise BadInput(
            "--management-kubeconfig",
            "is not given, and the policy's Cluster API objects are in another cluster",
            "name a kubeconfig for the management cluster",
        )
    return ClusterCleanup(
        connected_by_file(args.kubeconfig or kubeconfig_of(os.environ), args.context or ""),
        soft=not args.keep_soft_taints,
        foreign=args.foreign,
        management_client=management,
        group=policy.providers.get("clusterapi", {}).get("group", "") if policy else "",
        namespaces=capi_namespaces(policy) if policy else ("",),
        tokens=makes_tokens(policy) if policy else True,
    )


def _switched_off(store: Store, stored_policy: StoredPolicy, policy: Policy | None) -> StoredPolicy:
    """Put a version with mode off in force and return it. The document loses its comments; the
    version before keeps them."""
    from chalicelib.cli.policy_files import text_values, written
    from chalicelib.policy.compiled import compiled
    from chalicelib.policy.load import digest, load
    from chalicelib.runtime.mode_guard import permitted
    from chalicelib.store.errors import PolicyChanged

    if policy is None or not permitted(policy).plan:
        return stored_policy
    name = stored_policy.name
    document = text_values(stored_policy.text)
    document["spec"]["mode"] = "off"
    document["spec"].pop("schedules", None)  # a schedule may replace the mode
    text = written(document)
    off, _ = load(text, place=name)
    form, version = compiled(off, text), stored_policy.version
    try:
        store.policies.put(
            name, text, digest(text), version, webhook=off.webhook.secret, compiled=form
        )
    except PolicyChanged as error:
        raise BadInput(
            name, f"another version was stored in the meantime ({error})", "repeat it"
        ) from None
    current = store.policies.current(name)
    if current is None:
        raise BadInput(name, "the policy was archived in the meantime", "repeat it")
    return current


def _wait_for_operations(store: Store, name: str, clock: UninstallClock) -> None:
    """Wait until no operation is open. Raises BadInput with those that still are after LONGEST."""
    until = clock.now() + LONGEST
    warned = False
    while opened := store.operations.list_open(name):
        ids = ", ".join(operation.spec.id for operation in opened[:5])
        if clock.now() >= until:
            raise BadInput(
                name,
                f"{len(opened)} operations are still open: {ids}",
                f"the mode is off; repeat it when outscaler get operations {name} is empty",
            )
        if not warned:
            warn(f"{name}: mode off; waiting for {len(opened)} open operations to end: {ids}")
            warned = True
        clock.sleep(_PAUSE)


def _lease(store: Store, name: str, clock: UninstallClock) -> Lease:
    """Acquire the cluster's lease, so that no pass writes meanwhile. Raises LeaseHeld
    after the longest lease."""
    from chalicelib.store.errors import LeaseHeld

    until = clock.now() + _LEASE
    while True:
        try:
            return store.leases.acquire(name, f"uninstall-{uuid.uuid4()}", _LEASE)
        except LeaseHeld:
            if clock.now() >= until:
                raise
            clock.sleep(_PAUSE)


def _repeated(args: argparse.Namespace) -> str:
    """Return the command line that does what this one has shown: with the same
    cluster, tables and limits."""
    words = ["outscaler", "uninstall", args.name, "--yes"]
    for name in ("kubeconfig", "context", "management_kubeconfig", "table", "policy_table"):
        if value := getattr(args, name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    if args.managed:
        words += ["--managed", args.managed]
    for pair in args.secret:
        words += ["--secret", pair]
    for name in ("without_cluster", "foreign", "keep_soft_taints", "keep_status"):
        words += [f"--{name.replace('_', '-')}"] if getattr(args, name) else []
    return shlex.join(words)


def _remainder(
    args: argparse.Namespace, policy: Policy | None, uninstalled: Uninstalled, prefix: str
) -> list[str]:
    """Return what the command may not remove, as commands where there are any. prefix: of
    the deployment's secrets."""
    from chalicelib.cli.cluster_cleanup import EXPIRED

    rest = _roles(policy, keep_status=args.keep_status)
    tokens = [
        leftover.name.partition("/")[2]
        for leftover in uninstalled.cluster
        if EXPIRED in leftover.what
    ]
    if tokens:
        rest.append(
            f"kubectl -n kube-system delete secret {' '.join(tokens)} --ignore-not-found  # "
            "expired tokens"
        )
    if policy and policy.kubernetes.watcher_secret:
        rest.append(f"{_MANIFESTS} watcher | kubectl delete -f - --ignore-not-found")
        rest.append("kubectl -n kube-system delete secret outscaler-watcher --ignore-not-found")
    if not args.keep_status:
        options = policy.options if policy else Options()
        rest.append(
            f"kubectl -n {options.namespace} delete configmap {options.status_config_map_name} "
            "--ignore-not-found"
        )
    secrets = f"{prefix}{args.name}/"
    rest.append(
        f"aws ssm get-parameters-by-path --recursive --path /{secrets}  # then delete-parameter "
        "for each"
    )
    rest.append(
        f"aws secretsmanager list-secrets --filters Key=name,Values={secrets}  # then "
        "delete-secret for each"
    )
    rest.append(f"the deployment, if this was its last cluster: {DOCS}/uninstall.md")
    return rest


def _roles(policy: Policy | None, *, keep_status: bool) -> list[str]:
    """Return the commands that delete the roles which the policy needs, with their
    accounts and tokens. A role in another namespace than its file says is named, because
    `-f` would delete another one."""
    from chalicelib.cli.commands.manifests import manifest_name
    from chalicelib.cli.doctor.needed_rules import (
        ALL_FILES,
        MANAGEMENT,
        WORKLOAD_FILE,
        needed_rules,
    )

    tail = "--ignore-not-found"
    account = (
        f"kubectl -n kube-system delete serviceaccount,secret outscaler outscaler-token {tail}"
    )
    whole = {
        file: f"{_MANIFESTS} {manifest_name(file)} | kubectl delete -f - {tail}"
        for file in ALL_FILES
    }
    whole[WORKLOAD_FILE] += "  # service account, roles, status"
    if keep_status:
        whole[WORKLOAD_FILE] = (
            f"kubectl delete clusterrole,clusterrolebinding outscaler {tail}; kubectl -n "
            "kube-system delete "
            f"role,rolebinding outscaler outscaler-node-autoscalers {tail}  # of {_MANIFESTS} rbac"
        )
    commands = {WORKLOAD_FILE: whole[WORKLOAD_FILE]} if policy else whole
    accounts = {"": account if keep_status else f"{_MANIFESTS} token | kubectl delete -f - {tail}"}
    for rule in needed_rules(policy) if policy else ():
        there = "--context MANAGEMENT " if rule.place == MANAGEMENT else ""
        file, role = rule.source.file, rule.source.role
        if rule.is_moved:
            named = (
                f"-n {rule.namespace} delete role,rolebinding {role} {tail}  # of {_MANIFESTS} "
                f"{manifest_name(file)}"
            )
            commands[f"{there}{named}"] = f"kubectl {there}{named}"
        else:
            commands[f"{there}{file}"] = whole[file].replace("kubectl ", f"kubectl {there}")
        if there:
            accounts[there] = account.replace("kubectl ", f"kubectl {there}")
    return [*commands.values(), *accounts.values()]


def _blocks(uninstalled: Uninstalled, rest: list[str], repeated: str) -> list[Block]:
    name, done = uninstalled.name, uninstalled.done
    blocks: list[Block] = [
        Table(
            ("kind", "name", "what"),
            tuple(
                (leftover.kind, leftover.name, ", ".join(leftover.what))
                for leftover in uninstalled.cluster
            ),
            title="Removed from the cluster" if done else "Would be removed from the cluster",
            empty="nothing of Outscaler is in the cluster",
        )
    ]
    if uninstalled.claims:
        blocks.append(
            f"Claims {'released' if done else 'that would be released'}: "
            f"{', '.join(uninstalled.claims)}"
        )
    if uninstalled.unmarked:
        title = "Marks taken off" if done else "Marks that would be taken off"
        blocks.append(f"{title}: {', '.join(uninstalled.unmarked)}")
    if uninstalled.failures:
        rows = tuple((failure.kind, failure.name, failure.why) for failure in uninstalled.failures)
        blocks.append(Table(("kind", "name", "why not"), rows, title="Not removed"))
    if not done:
        outcome = f"nothing is changed. Next: {repeated}"
    elif uninstalled.failures:
        outcome = (
            "the mode is off; the policy stays until everything is removed. Repeat the command"
        )
    elif uninstalled.version:
        outcome = f"version {uninstalled.version} of the policy is archived"
    else:
        outcome = "no policy was in force"
    remains = "\n".join(["Remains, for you to delete:", *(f"  {line}" for line in rest)])
    return [*blocks, f"{name}: {outcome}", remains]
