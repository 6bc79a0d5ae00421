"""`outscaler uninstall CLUSTER`: takes Outscaler out of a cluster, so that nothing of it stays there.

Its steps are in an order in which nothing is written again: the mode becomes off, open operations end, the lease keeps
passes away, then taints, cordons, annotations, marks and tokens are removed, claims are released, and the policy is
archived. It can be repeated. It never deletes a machine. Without --yes it shows what it would do.
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.command.deployment_settings import settings_of
from chalicelib.command.kubeconfigs import kubeconfig_of
from chalicelib.command.output import Block, Table, emit, warn
from chalicelib.command.store_access import add_table_argument, note, open_store
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy

if TYPE_CHECKING:
    from chalicelib.command.cluster_cleanup import ClusterCleanup, Leftover, NotRemoved
    from chalicelib.store import Lease, Store, StoredPolicy

LONGEST = 25 * 60.0
"""Seconds to wait for open operations, which is longer than any of them may take without a new attempt."""
_OFF = "off"
_PAUSE = 5.0
_LEASE = 900.0


class UninstallClock(msgspec.Struct, frozen=True):
    """now: epoch seconds. sleep: waits for so many seconds."""

    now: Callable[[], float]
    sleep: Callable[[float], None]


class Uninstalled(msgspec.Struct, frozen=True, rename="camel"):
    """The result. done: whether anything was changed. version: of the archived policy, 0 where there was none. claims:
    released groups."""

    name: str
    done: bool
    version: int
    claims: tuple[str, ...]
    cluster: tuple[Leftover, ...]
    failures: tuple[NotRemoved, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster, its kubeconfigs, and what to leave."""
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    parser.add_argument("--yes", action="store_true", help="do it; without it, only show what would be done")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="the cluster, with rights to patch nodes (default: $KUBECONFIG, otherwise ~/.kube/config)",
    )
    parser.add_argument("--context", help="the kubeconfig's context, if not its current one")
    parser.add_argument(
        "--management-kubeconfig", metavar="FILE", type=Path, help="the cluster of Cluster API's objects, if another"
    )
    parser.add_argument("--without-cluster", action="store_true", help="the cluster does not exist any more")
    parser.add_argument(
        "--foreign",
        action="store_true",
        help="also remove taints of removals that another autoscaler has left behind; stop that autoscaler first",
    )
    parser.add_argument(
        "--keep-soft-taints", action="store_true", help="leave soft taints to another autoscaler that is at work"
    )
    parser.add_argument("--keep-status", action="store_true", help="do not name the status ConfigMap as a remainder")
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Uninstall, or show what would be done. Returns 0, or 1 where something could not be removed. Raises BadInput for
    a cluster that the table does not have."""
    return uninstall(args, UninstallClock(time.time, time.sleep))


def uninstall(args: argparse.Namespace, clock: UninstallClock) -> int:
    """See run."""
    store = open_store(args)
    current = store.policies.current(args.name)
    latest = current or next(iter(store.policies.history(args.name, 1)), None)
    if latest is None:
        raise BadInput(args.name, "no such cluster", "outscaler get clusters lists them")
    policy, prefix = _policy_of(latest), settings_of(store).deployment.secret_prefix
    cleanup = None if args.without_cluster else _cleanup(args, policy)
    if not args.yes:
        shown = Uninstalled(
            name=args.name,
            done=False,
            version=current.version if current else 0,
            claims=_claims(store, args.name),
            cluster=cleanup.found() if cleanup else (),
            failures=tuple(cleanup.failures) if cleanup else (),
        )
        return _print(args, shown, policy, prefix)
    if current is not None:
        current = _switched_off(store, current, policy)
        _wait_for_operations(store, args.name, clock)
    lease = _lease(store, args.name, clock)
    try:
        removed = cleanup.removed() if cleanup else ()
        failures = tuple(cleanup.failures) if cleanup else ()
        claims = _release_claims(store, args.name)
        if current is not None and not failures:
            store.policies.archive(current)
        _write_down(store, args.name, clock.now(), removed)
    finally:
        store.leases.release(lease)
    version = current.version if current else 0
    result = Uninstalled(args.name, done=True, version=version, claims=claims, cluster=removed, failures=failures)
    return _print(args, result, policy, prefix)


def _policy_of(latest_policy: StoredPolicy) -> Policy | None:
    """Return a stored policy; None where this release cannot read it."""
    from chalicelib.policy.load import load

    try:
        return load(latest_policy.text, place=f"{latest_policy.name} version {latest_policy.version}")[0]
    except BadInput as error:
        warn(f"{error}; the policy is archived without being read")
        return None


def _cleanup(args: argparse.Namespace, policy: Policy | None) -> ClusterCleanup:
    """Return what looks for and removes the rest, in the places that the policy uses; everywhere where there is none
    that can be read. Raises BadInput where a kubeconfig is missing."""
    from chalicelib.command.cluster_cleanup import ClusterCleanup
    from chalicelib.command.doctor.needed_rules import capi_namespaces, makes_tokens, management_access
    from chalicelib.command.live_cluster import connected_by_file

    management = connected_by_file(args.management_kubeconfig, "") if args.management_kubeconfig else None
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
    """Put a version with mode off in force and return it."""
    from chalicelib.dispatch.mode_guard import permitted
    from chalicelib.policy.compiled import compiled
    from chalicelib.policy.load import digest, load
    from chalicelib.store.errors import PolicyChanged

    if policy is None or not permitted(policy).plan:
        return stored_policy
    text = _with_mode_off(stored_policy.text)
    off, _ = load(text, place=stored_policy.name)
    try:
        store.policies.put(
            stored_policy.name,
            text,
            digest(text),
            stored_policy.version,
            webhook=off.webhook.secret,
            compiled=compiled(off, text),
        )
    except PolicyChanged as error:
        raise BadInput(
            stored_policy.name, f"another version was stored in the meantime ({error})", "repeat it"
        ) from None
    found = store.policies.current(stored_policy.name)
    if found is None:
        raise BadInput(stored_policy.name, "the policy was archived in the meantime", "repeat it")
    return found


def _with_mode_off(text: str) -> str:
    """Return the document with mode off, without its comments; the version before keeps them."""
    import yaml

    document: Any = yaml.safe_load(text)
    document["spec"]["mode"] = _OFF
    document["spec"].pop("schedules", None)  # a schedule may replace the mode
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _wait_for_operations(store: Store, name: str, clock: UninstallClock) -> None:
    """Wait until no operation is open. Raises BadInput with those that still are after LONGEST."""
    until = clock.now() + LONGEST
    said = False
    while opened := store.operations.list_open(name):
        names = ", ".join(each.spec.id for each in opened[:5])
        if clock.now() >= until:
            raise BadInput(
                name,
                f"{len(opened)} operations are still open: {names}",
                f"the mode is off; repeat it when outscaler get operations {name} is empty",
            )
        if not said:
            warn(f"{name}: mode off; waiting for {len(opened)} open operations to end: {names}")
            said = True
        clock.sleep(_PAUSE)


def _lease(store: Store, name: str, clock: UninstallClock) -> Lease:
    """Acquire the cluster's lease, so that no pass writes meanwhile. Raises LeaseHeld after the longest lease."""
    from chalicelib.store.errors import LeaseHeld

    until = clock.now() + _LEASE
    while True:
        try:
            return store.leases.acquire(name, f"uninstall-{uuid.uuid4()}", _LEASE)
        except LeaseHeld:
            if clock.now() >= until:
                raise
            clock.sleep(_PAUSE)


def _claims(store: Store, name: str) -> tuple[str, ...]:
    return tuple(f"{each.provider}#{each.key}" for each in store.group_ownership.all() if each.owner == name)


def _release_claims(store: Store, name: str) -> tuple[str, ...]:
    """Release the cluster's claims and return them. No operation is open, and the lease is held."""
    owned = [each for each in store.group_ownership.all() if each.owner == name]
    store.group_ownership.release(name, [(each.provider, each.key) for each in owned])
    return tuple(f"{each.provider}#{each.key}" for each in owned)


def _write_down(store: Store, name: str, now: float, removed: tuple[Leftover, ...]) -> None:
    store.pauses.change(name, lambda _: ())
    note(store, name, "uninstalled", {"objects": len(removed)}, at=now)


def _print(args: argparse.Namespace, uninstalled: Uninstalled, policy: Policy | None, prefix: str) -> int:
    rest = _remainder(args, policy, uninstalled, prefix)
    data = msgspec.to_builtins(uninstalled) | {"remains": rest}
    emit(args.output, data, lambda: _blocks(uninstalled, rest, _repeated(args)))
    return 1 if uninstalled.failures else 0


def _repeated(args: argparse.Namespace) -> str:
    """Return the command line that does what this one has shown: with the same cluster, tables and limits."""
    words = ["outscaler", "uninstall", args.name, "--yes"]
    for name in ("kubeconfig", "context", "management_kubeconfig", "table", "policy_table"):
        if value := getattr(args, name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    for name in ("without_cluster", "foreign", "keep_soft_taints", "keep_status"):
        words += [f"--{name.replace('_', '-')}"] if getattr(args, name) else []
    return shlex.join(words)


def _remainder(args: argparse.Namespace, policy: Policy | None, uninstalled: Uninstalled, prefix: str) -> list[str]:
    """Return what the command may not remove, as commands where there are any. prefix: of the deployment's secrets."""
    from chalicelib.command.cluster_cleanup import EXPIRED

    rest = _roles(policy, keep_status=args.keep_status)
    tokens = [each.name.partition("/")[2] for each in uninstalled.cluster if EXPIRED in each.what]
    if tokens:
        rest.append(f"kubectl -n kube-system delete secret {' '.join(tokens)} --ignore-not-found  # expired tokens")
    if policy and policy.kubernetes.watcher_secret:
        rest.append("kubectl delete -f infra/kubernetes/outscaler-watcher.yaml --ignore-not-found")
        rest.append("kubectl -n kube-system delete secret outscaler-watcher --ignore-not-found")
    if not args.keep_status:
        namespace = policy.options.namespace if policy else "kube-system"
        status = policy.options.status_config_map_name if policy else "cluster-autoscaler-status"
        rest.append(f"kubectl -n {namespace} delete configmap {status} --ignore-not-found")
    secrets = f"{prefix}{args.name}/"
    rest.append(f"aws secretsmanager list-secrets --filters Key=name,Values={secrets}  # then delete-secret for each")
    rest.append("the deployment, if this was its last cluster: docs/uninstall.md")
    return rest


def _roles(policy: Policy | None, *, keep_status: bool) -> list[str]:
    """Return the commands that delete the roles which the policy needs, with their accounts and tokens. A role in
    another namespace than its file says is named, because `-f` would delete another one."""
    from chalicelib.command.doctor.needed_rules import ALL_FILES, MANAGEMENT, WORKLOAD_FILE, needed_rules

    tail = "--ignore-not-found"
    account = f"kubectl -n kube-system delete serviceaccount,secret outscaler outscaler-token {tail}"
    whole = {file: f"kubectl delete -f infra/kubernetes/{file} {tail}" for file in ALL_FILES}
    whole[WORKLOAD_FILE] += "  # service account, roles, status"
    if keep_status:
        whole[WORKLOAD_FILE] = (
            f"kubectl delete clusterrole,clusterrolebinding outscaler {tail}; kubectl -n kube-system delete "
            f"role,rolebinding outscaler outscaler-node-autoscalers {tail}  # of infra/kubernetes/{WORKLOAD_FILE}"
        )
    commands = {WORKLOAD_FILE: whole[WORKLOAD_FILE]} if policy else whole
    accounts = {"": account if keep_status else f"kubectl delete -f infra/kubernetes/token-secret.yaml {tail}"}
    for rule in needed_rules(policy) if policy else ():
        there = "--context MANAGEMENT " if rule.place == MANAGEMENT else ""
        file, role = rule.source.file, rule.source.role
        if rule.is_moved:
            named = f"-n {rule.namespace} delete role,rolebinding {role} {tail}  # of infra/kubernetes/{file}"
            commands[f"{there}{named}"] = f"kubectl {there}{named}"
        else:
            commands[f"{there}{file}"] = whole[file].replace("kubectl ", f"kubectl {there}")
        if there:
            accounts[there] = account.replace("kubectl ", f"kubectl {there}")
    return [*commands.values(), *accounts.values()]


def _blocks(uninstalled: Uninstalled, rest: list[str], repeated: str) -> list[Block]:
    title = "Removed from the cluster" if uninstalled.done else "Would be removed from the cluster"
    blocks: list[Block] = [
        Table(
            ("kind", "name", "what"),
            tuple((each.kind, each.name, ", ".join(each.what)) for each in uninstalled.cluster),
            title=title,
            empty="nothing of Outscaler is in the cluster",
        )
    ]
    if uninstalled.claims:
        blocks.append(
            f"Claims {'released' if uninstalled.done else 'that would be released'}: {', '.join(uninstalled.claims)}"
        )
    if uninstalled.failures:
        blocks.append(
            Table(
                ("kind", "name", "why not"),
                tuple((each.kind, each.name, each.why) for each in uninstalled.failures),
                title="Not removed",
            )
        )
    blocks.append(_outcome(uninstalled, repeated))
    blocks.append("\n".join(["Remains, for you to delete:", *(f"  {each}" for each in rest)]))
    return blocks


def _outcome(uninstalled: Uninstalled, repeated: str) -> str:
    if not uninstalled.done:
        return f"{uninstalled.name}: nothing is changed. Next: {repeated}"
    if uninstalled.failures:
        return f"{uninstalled.name}: the mode is off; the policy stays until everything is removed. Repeat the command"
    if not uninstalled.version:
        return f"{uninstalled.name}: no policy was in force"
    return f"{uninstalled.name}: version {uninstalled.version} of the policy is archived"
