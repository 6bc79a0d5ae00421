"""Reads the inputs of `plan` and `explain`: a cluster from files or live, a policy, a memory, an
instant and hypothetical changes. Both commands have the same arguments, so that `explain`
explains what `plan` shows.
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from chalicelib.cli import whatif
from chalicelib.cli.kubeconfig_files import kubeconfig_of
from chalicelib.cli.live_cluster import live
from chalicelib.cli.output import progress, warn
from chalicelib.cli.policy_files import planned_policy
from chalicelib.model.api_integers import unbounded_numbers
from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.operation_document import OperationDocument, from_document, to_document
from chalicelib.model.plan import Plan
from chalicelib.model.quantity import parse_duration
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import parse_time
from chalicelib.net.bounded_files import content
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.reasons.words import counted

SAVED = (
    "a saved cluster: a folder of `outscaler capture`, of lists of kubectl as JSON or YAML, or of "
    "`kubectl cluster-info dump`; or one file of objects, - for standard input"
)
_NAMED = 10
_LONGEST_TIME = 1_000  # maximum size of captured-at in bytes


class PlanInputs(msgspec.Struct, frozen=True):
    """All inputs of a plan. assumed: one sentence per assumption; read:
    seconds that reading took."""

    snapshot: Snapshot
    policy: Policy
    memory: Memory
    now: float
    seed: int
    unneeded_for: float | None
    assumed: tuple[str, ...]
    read: float


class PlannedCase(msgspec.Struct, frozen=True):
    """A plan, the memory after it, and the seconds that planning took."""

    plan: Plan
    memory: Memory
    timings: dict[str, float]


def add_arguments(parser: argparse.ArgumentParser, *, stored: bool = False) -> None:
    """Add the input arguments and the what-if arguments. stored: whether --cluster may name a
    cluster of the table instead."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", type=Path, help="the same as --snapshot DIR"
    )
    parser.add_argument("--snapshot", metavar="DIR", type=Path, help=SAVED)
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help="a live cluster")
    if stored:
        parser.add_argument(
            "--cluster",
            metavar="NAME",
            help="the last decision about this cluster, from the deployment's table",
        )
    parser.add_argument(
        "--context",
        metavar="NAME",
        help=(
            "a live cluster: this context of --kubeconfig, otherwise of $KUBECONFIG or "
            "~/.kube/config"
        ),
    )
    parser.add_argument(
        "--management-kubeconfig",
        metavar="FILE",
        type=Path,
        help="the cluster that Cluster API's objects are in, if the policy has one of its own",
    )
    parser.add_argument(
        "--secret",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help=(
            "a file that replaces a secret of the policy (a vendor's credentials); may be repeated"
        ),
    )
    parser.add_argument(
        "--node-groups",
        metavar="FILE",
        type=Path,
        help="the groups (default: DIR/manifest.json, otherwise drafted from the nodes)",
    )
    parser.add_argument(
        "--policy", metavar="FILE", type=Path, help="a policy document: options, groups, providers"
    )
    parser.add_argument(
        "--memory", metavar="FILE", type=Path, help="a memory file that --save-memory wrote"
    )
    parser.add_argument(
        "--catalogue",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help=(
            "machines that managed pools could buy, a file that --save of catalogue wrote; "
            "may be repeated"
        ),
    )
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option, as in the policy; may be repeated",
    )
    parser.add_argument(
        "--now",
        metavar="RFC3339",
        help="the time to plan for (default: DIR/captured-at, otherwise now)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the expander random")
    parser.add_argument(
        "--assume-unneeded-for",
        metavar="DURATION",
        help="treat every unneeded node as unneeded for so long, to see the removals",
    )
    whatif.add_arguments(parser)


def choose_source(args: argparse.Namespace) -> None:
    """Check that the arguments name one cluster, and complete them: DIR is --snapshot DIR, and
    --context alone is of the kubeconfig that kubectl takes. Raises BadInput."""
    given = {
        "DIR": args.folder,
        "--snapshot": args.snapshot,
        "--kubeconfig": args.kubeconfig,
        "--cluster": getattr(args, "cluster", None),
    }
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise BadInput(names[1], f"is given beside {names[0]}", "name one cluster")
    if not names and args.context is None:
        stored = ", --cluster NAME" if "cluster" in args else ""
        raise BadInput(
            "DIR",
            "no cluster is named",
            f"name a folder of saved files, --kubeconfig FILE{stored} or --context NAME",
        )
    args.snapshot = args.snapshot or args.folder
    if not names:
        args.kubeconfig = kubeconfig_of(os.environ)


def read(args: argparse.Namespace) -> PlanInputs:
    """Read all inputs; raises BadInput."""
    choose_source(args)
    of_a_live_cluster = (
        ("--context", args.context),
        ("--management-kubeconfig", args.management_kubeconfig),
        ("--secret", args.secret or None),
    )
    for argument, value in of_a_live_cluster:
        if args.snapshot is not None and value is not None:
            raise BadInput(
                argument, "belongs to --kubeconfig, and --snapshot is given", "take it out"
            )
    now = _now(args)
    policy = _policy(args, now)
    memory = read_memory(args.memory) if args.memory is not None else Memory()
    unneeded_for = _duration(args.assume_unneeded_for)
    started = time.perf_counter()
    with progress("reading the cluster"):
        snapshot = _snapshot(args, policy, now)
        if args.catalogue:
            from chalicelib.cli.catalogue_candidates import with_catalogues

            snapshot = with_catalogues(snapshot, policy, args.catalogue)
    took = time.perf_counter() - started
    # Ignored fields of HorizontalNodeAutoscalers, which a running deployment reports in events. The
    # plan's own notes list the refused objects.
    for item in snapshot.rule_objects or ():
        for warning in () if item.problems else item.warnings:
            warn(f"HorizontalNodeAutoscaler {item.key}: {warning}")
    snapshot, memory, assumed = whatif.assume(args, snapshot, memory, now, policy.options)
    return PlanInputs(snapshot, policy, memory, now, args.seed, unneeded_for, assumed, took)


def decided(inputs: PlanInputs, policy: Policy | None = None) -> PlannedCase:
    """Make the plan for a case, or for the same case under another policy."""
    from chalicelib.plan.planner import plan_cluster

    started = time.perf_counter()
    with progress("planning"):
        plan, memory = plan_cluster(
            inputs.snapshot,
            policy or inputs.policy,
            inputs.memory,
            inputs.now,
            inputs.seed,
            assume_unneeded_for=inputs.unneeded_for,
            wait=False,
        )
    return PlannedCase(plan, memory, {"decode": inputs.read, "plan": time.perf_counter() - started})


def _policy(args: argparse.Namespace, now: float) -> Policy:
    """Return the policy with its schedules applied at that instant."""
    from chalicelib.cli.option_overrides import with_options
    from chalicelib.policy.open_schedules import apply_schedules
    from chalicelib.runtime.mode_guard import permitted

    policy = Policy(
        name=saved_name(args.snapshot) if args.snapshot else args.context or args.kubeconfig.stem
    )
    if args.policy is not None:
        policy, warnings = planned_policy(args.policy, args.policy.name)
        for warning in warnings:
            warn(warning)
        policy = apply_schedules(policy, now)
        if not permitted(policy).plan:
            warn(
                f"{args.policy.name}: mode is {permitted(policy).word}: nothing would be done; "
                "planned all the same"
            )
    return with_options(policy, args.option, warn=warn)


def _now(args: argparse.Namespace) -> float:
    text, place = args.now, "--now"
    captured = None
    if args.snapshot and text is None and args.snapshot.is_dir():
        captured = args.snapshot / "captured-at"
    if captured is not None and captured.is_file():
        text, place = (
            content(captured, _LONGEST_TIME).decode("utf-8", "replace").strip(),
            str(captured),
        )
    try:
        return time.time() if text is None else parse_time(text)
    except BadInput as error:
        raise BadInput(place, f"{text[:60]!r} is not a time", error.remedy) from None


def _duration(text: str | None) -> float | None:
    """Return --assume-unneeded-for in seconds; None if it is not given."""
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except BadInput as error:
        raise BadInput("--assume-unneeded-for", error.problem, error.remedy) from None
    if seconds < 0:
        raise BadInput(
            "--assume-unneeded-for",
            f"{text!r} is negative",
            f"write it as Go does: {text.lstrip('-')}",
        )
    return seconds


def _snapshot(args: argparse.Namespace, policy: Policy, now: float) -> Snapshot:
    from chalicelib.cli.saved import saved_cluster
    from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT

    if args.snapshot is not None:
        snapshot = saved_cluster.read(
            args.snapshot,
            node_groups=args.node_groups,
            cluster=policy.name,
            taken_at=now,
            namespace=policy.options.namespace,
            draft=lambda nodes: _drafted(args.snapshot, nodes),
        )
        if policy.scale_up.horizontal_node_autoscalers is False:
            read = tuple(gap for gap in snapshot.gaps if gap.kind != RULE_OBJECT)
            snapshot = msgspec.structs.replace(snapshot, rule_objects=(), gaps=read)
    else:
        snapshot = live(args, policy, now)
        if args.node_groups is None:  # the providers have applied the policy's bounds already
            return snapshot
    return with_bounds(
        snapshot,
        policy.node_groups,
        place=args.policy.name if args.policy else "--policy",
        warn=warn,
    )


def saved_name(source: Path) -> str:
    """Return a name for a saved cluster: of its folder, or of its file without the ending."""
    if str(source) == "-":
        return "stdin"
    name = source.resolve().name
    return name.partition(".")[0] or name if source.is_file() else name


def _drafted(source: Path, nodes: Sequence[Node]) -> bytes:
    """Return a manifest of the nodes' groups, as `outscaler groups` drafts it, and say what was
    guessed."""
    from chalicelib.cli.saved.capture_lists import saved_bounds
    from chalicelib.cli.saved.group_draft import LEAST_MAX, draft

    drafted = draft(nodes, saved_bounds(source) if source.is_dir() else {})
    count = len(drafted.manifest["nodeGroups"])
    warn(
        f"{source}: no manifest.json: {counted(count, 'node group')} drafted from the nodes, min 0 "
        f"and max (twice the size, at least {LEAST_MAX}) guessed; to correct them: outscaler "
        f"groups {shlex.quote(str(source))} > groups.json, and --node-groups groups.json"
    )
    return msgspec.json.encode(drafted.manifest)


# -- saved memories. Every JSON object could be decoded as an empty memory. A wrong file would then
#    change the plan silently, so only a file that is recognisably a memory is accepted.

_KIND = "outscaler/memory"
_MOST_BYTES = 2**28
_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(Memory))


class _Operations(msgspec.Struct, frozen=True):
    """The operations of an encoded Memory."""

    operations: tuple[OperationDocument, ...] = ()


def write_memory(path: Path, memory: Memory) -> None:
    """Write the memory with its kind; raises OSError."""
    # Only for encoding: the type of the field is Operation.
    flat = msgspec.structs.replace(memory, operations=tuple(map(to_document, memory.operations)))
    path.write_bytes(
        msgspec.json.format(msgspec.json.encode({"kind": _KIND, "memory": flat}), indent=1) + b"\n"
    )


def read_memory(path: Path) -> Memory:
    """Read a saved memory, or a bare Memory object without other keys. Raises BadInput, OSError."""
    data = content(path, _MOST_BYTES)
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if "kind" not in fields:
            return _bare(data, fields, "kind is missing")
        if msgspec.json.decode(fields["kind"]) != _KIND or set(fields) != {"kind", "memory"}:
            raise msgspec.ValidationError(
                f"kind and memory must be all it has, and kind must be {_KIND}"
            )
        inner = msgspec.json.decode(fields["memory"], type=dict[str, msgspec.Raw])
        return _bare(bytes(fields["memory"]), inner, "") if inner else Memory()
    except RecursionError:
        raise BadInput(
            str(path), "is not a saved memory (nested too deeply)", "write one with --save-memory"
        ) from None
    except (msgspec.DecodeError, ValueError) as error:
        # ValueError: text that is not UTF-8, an overlong number
        raise BadInput(
            str(path), f"is not a saved memory ({error})", "write one with --save-memory"
        ) from None


def _bare(data: bytes, fields: dict[str, msgspec.Raw], empty: str) -> Memory:
    """Decode a Memory that has at least one known field and no unknown ones; raises
    msgspec.ValidationError, ValueError for a number beyond the bounds of stored data."""
    unknown = sorted(set(fields) - _KNOWN)
    if unknown or not fields:
        raise msgspec.ValidationError(
            f"{unknown[0]} is nothing that is remembered" if unknown else empty
        )
    operations = msgspec.json.decode(data, type=_Operations).operations
    others = msgspec.json.encode(
        {name: value for name, value in fields.items() if name != "operations"}
    )
    memory = msgspec.json.decode(others, type=Memory)
    if mistake := next(unbounded_numbers(memory, "memory"), ""):
        raise ValueError(mistake)
    return msgspec.structs.replace(memory, operations=tuple(map(from_document, operations)))


# -- bounds of groups that come from a file


def with_bounds(
    snapshot: Snapshot,
    policies: tuple[GroupPolicy, ...],
    *,
    place: str,
    warn: Callable[[str], None],
) -> Snapshot:
    """Return the snapshot with the bounds and priorities of the policy, as a provider applies them
    to its own groups; values that the policy omits stay as saved. A saved cluster does not record
    which provider each group will have, so a group is found only by its id or by another name that
    it is saved with.

    place: the policy's file. warn: called for each group that the snapshot does not have. Raises
    BadInput for bounds that contradict the saved ones.
    """
    by_id = {group.id: group for group in policies}
    ids = sorted(group.id for group in snapshot.groups)
    names = {*ids, *(alias for group in snapshot.groups for alias in group.aliases)}
    there = (
        f"its groups are {', '.join(ids[:_NAMED])}{' …' if len(ids) > _NAMED else ''}"
        if ids
        else "it has none"
    )
    for name in by_id:
        if name not in names:
            warn(f"{place}: spec.nodeGroups: {name} is not a group of this snapshot; {there}")
    groups = []
    for group in snapshot.groups:
        policy = next((by_id[name] for name in (group.id, *group.aliases) if name in by_id), None)
        groups.append(group if policy is None else _bounded(group, policy, place))
    return msgspec.structs.replace(snapshot, groups=tuple(groups))


def _bounded(group: NodeGroup, policy: GroupPolicy, place: str) -> NodeGroup:
    least = group.min if policy.min is None else policy.min
    most = group.max if policy.max is None else policy.max
    if most < least:
        side, problem = "min", f"max {most} is below min {least} of the snapshot"
        if policy.max is None:
            side, problem = "max", f"max {most} of the snapshot is below min {least}"
        raise BadInput(f"{place}: spec.nodeGroups: {group.id}", problem, f"give {side} as well")
    return msgspec.structs.replace(
        group, min=least, max=most, priority=policy.priority or group.priority
    )
