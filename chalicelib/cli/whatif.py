"""What-if arguments of `plan` and `explain`: --add-pods, --remove-node, --group. Parses them for
plan/what_if.py and states each assumption in a sentence, because a plan for a hypothetical cluster
must not be mistaken for a plan for the real one.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.arguments import meant_group, named, namespaced
from chalicelib.cli.output import warn
from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.overview import GroupOverview
from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from chalicelib.net.bounded_files import content
from chalicelib.policy.settings.cluster_options import Options

if TYPE_CHECKING:
    from chalicelib.plan.what_if import AddedPods, GroupBounds

_MOST = 500_000
_MOST_BYTES = 2**28
_MOST_VALUES = 2_000_000  # of a YAML manifest; JSON has no aliases
_SIGN = "\N{MULTIPLICATION SIGN}"  # for output; input may also use * and x
_TIMES = re.compile(rf"(\d{{1,9}})\s*[{_SIGN}*xX]\s*(.+)", re.DOTALL)
_FORM = f"write FILE, or N{_SIGN}FILE, or N{_SIGN}namespace/name of a pod or workload"
_BOUNDS = ("min", "max", "size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --add-pods, --remove-node and --group; each may be repeated."""
    parser.add_argument(
        "--add-pods",
        metavar=f"FILE|N{_SIGN}TEMPLATE",
        action="append",
        default=[],
        help="what if these were pending as well? The pods and workloads of a manifest; or N pods "
        "like "
        "the one in a file, or like a pod or workload of the cluster, namespace/name",
    )
    parser.add_argument(
        "--remove-node",
        metavar="NAME",
        action="append",
        default=[],
        help="what if this node were gone, and its group smaller by one?",
    )
    parser.add_argument(
        "--group",
        metavar="GROUP:max=N,min=N,size=N",
        action="append",
        default=[],
        help="other bounds, or another target size, of a node group (its name or id)",
    )


def assume(
    args: argparse.Namespace, snapshot: Snapshot, memory: Memory, now: float, options: Options
) -> tuple[Snapshot, Memory, tuple[str, ...]]:
    """Apply the arguments to the cluster and its memory, and return a sentence per
    assumption; raises BadInput."""
    if not (args.add_pods or args.remove_node or args.group):
        return snapshot, memory, ()
    from chalicelib.plan import what_if

    says: list[str] = []
    # resolved before --remove-node may remove the copied pod
    new_pods = [pods for text in args.add_pods for pods in _added_pods(text, snapshot)]
    if args.remove_node:
        nodes = {node.name: node.name for node in snapshot.nodes}
        names = [named(name, nodes, "--remove-node", "node") for name in args.remove_node]
        snapshot, memory, removed = what_if.without_nodes(snapshot, memory, names, now, options)
        for node in removed:
            text = f"node {node.node} is gone" + (
                f", and {node.group} is smaller by one" if node.group else ""
            )
            text += f"; {len(node.again)} of its pods want a node again"
            text += (
                f", {len(node.lost)} will not come back: {', '.join(node.lost[:3])}"
                if node.lost
                else ""
            )
            says.append(text)
    if new_pods:
        snapshot, added = what_if.with_pods(snapshot, new_pods, now, options)
        for pods in added:
            listed = ", ".join(pods) or "no pods"
            many = f"{len(pods)} pods, {pods[0]} to {pods[-1]}" if len(pods) > 2 else listed
            says.append(f"pending as well: {many}")
    for text in args.group:
        name, bounds = _bounds(text)
        group = _meant_group(snapshot, name)
        name = group.id
        before = {"min": group.min, "max": group.max, "size": group.target}
        snapshot, memory = what_if.with_bounds(snapshot, memory, name, bounds, now, options)
        changes = [
            f"{key} {value} instead of {before[key]}"
            for key in _BOUNDS
            if (value := getattr(bounds, key)) is not None
        ]
        says.append(f"node group {name} has {', '.join(changes)}")
    return snapshot, memory, tuple(says)


def _meant_group(snapshot: Snapshot, text: str) -> NodeGroup:
    """Return the node group that a person means by an id, a name or an alias. Raises BadInput."""
    overviews = [
        GroupOverview(group.id, group.name, group.provider, aliases=group.aliases)
        for group in snapshot.groups
    ]
    key = meant_group(overviews, text, "--group")
    return next(group for group in snapshot.groups if group.id == key)


def _bounds(text: str) -> tuple[str, GroupBounds]:
    """Parse `GROUP:max=50,min=2`; an id may contain colons. Raises BadInput."""
    from chalicelib.plan.what_if import GroupBounds

    name, colon, settings = text.rpartition(":")
    values: dict[str, int] = {}
    for setting in settings.split(",") if colon else ():
        key, _, value = (part.strip() for part in setting.partition("="))
        if key not in _BOUNDS or not value.isdecimal() or not value.isascii() or len(value) > 9:
            raise BadInput(
                f"--group {name}",
                f"{setting.strip()!r} is not a setting",
                "write max=50, min=2 or size=5",
            )
        values[key] = int(value)
    if not name or not values:
        raise BadInput(
            "--group",
            f"{text!r} says nothing",
            "write GROUP:max=50, and min= or size= behind commas",
        )
    return name, GroupBounds(**values)


def _added_pods(text: str, snapshot: Snapshot) -> tuple[AddedPods, ...]:
    """Return the pods that one --add-pods requests."""
    if Path(text).is_file():
        return _of_file(Path(text), snapshot)
    times = _TIMES.fullmatch(text)
    count, template = (int(times[1]), times[2].strip()) if times else (1, text)
    if not 0 < count <= _MOST:
        raise BadInput(
            "--add-pods", f"{count} pods are not to be added", f"write a number from 1 to {_MOST}"
        )
    if Path(template).is_file():
        entries = _of_file(Path(template), snapshot)
        if len(entries) != 1:
            raise BadInput(
                f"--add-pods {text}",
                f"{template} holds {len(entries)} pods or workloads",
                f"N{_SIGN} takes a file with one; without it all of them are added",
            )
        return (msgspec.structs.replace(entries[0], count=count, keep_name=False),)
    if times is None and "/" not in template:
        raise BadInput("--add-pods", f"there is no file {text}", _FORM)
    return (_copies(template, count, snapshot),)


def _of_file(path: Path, snapshot: Snapshot) -> tuple[AddedPods, ...]:
    from chalicelib.cli.saved.manifest_pods import flatten_manifests, pods_to_add

    place, remedy = f"--add-pods {path}", "give the pods that matter alone"
    try:
        objects = [
            item
            for document in _documents(path, place, remedy)
            for item in flatten_manifests(document)
        ]
    except RecursionError:
        raise BadInput(place, "is nested too deeply", remedy) from None
    added, skipped = pods_to_add(objects, path.name, snapshot.classes)
    if not added:
        raise BadInput(
            place,
            "holds no pods" + (f", only {', '.join(skipped)}" if skipped else ""),
            "give Pods, or workloads with a pod template, as JSON or YAML",
        )
    if skipped:
        warn(f"{place}: {', '.join(skipped)} passed over: no pods in it")
    for pods in added:
        if pods.cls.priority_class and pods.cls.priority is None:
            warn(
                f"{place}: {pods.namespace}/{pods.name}: no pod of the cluster has priority class "
                f"{pods.cls.priority_class}, so its value is not known, and none is assumed"
            )
    return added


def _documents(path: Path, place: str, remedy: str) -> list[Any]:
    """Parse JSON, or otherwise YAML with any number of documents; raises BadInput."""
    from chalicelib.net.safe_yaml import DEEPEST, input_documents

    try:
        data = content(path, _MOST_BYTES)
    except OSError as error:
        raise BadInput(
            place, f"cannot be read: {error.strerror}", "name a file with the pods that matter"
        ) from None
    try:
        return [msgspec.json.decode(data)]
    except (msgspec.DecodeError, ValueError, RecursionError):
        # ValueError: an integer of thousands of digits
        return input_documents(
            lambda: data.decode("utf-8-sig"),
            place,
            deepest=DEEPEST,
            most=_MOST_VALUES,
            remedy=remedy,
            longest=200,
        )


def _copies(name: str, count: int, snapshot: Snapshot) -> AddedPods:
    """Return N copies of a pod of the cluster, or of a workload's newest pod. Copies reference the
    same PersistentVolumeClaims."""
    from chalicelib.plan.what_if import AddedPods, as_new

    originals = {**_newest_pods(snapshot), **{pod.key: pod for pod in snapshot.pods}}
    pod = namespaced(name, originals, "--add-pods", "file, pod or workload with pods")
    cls = snapshot.cls(pod)
    if cls.mirror:
        raise BadInput(
            f"--add-pods {name}", "is a static pod of its node, which is never scheduled", _FORM
        )
    claims = [volume.claim for volume in cls.volumes if volume.claim and volume.template is None]
    if claims:
        warn(f"--add-pods {name}: its copies share its claims: {', '.join(claims)}")
    node = next((node for node in snapshot.nodes if node.name == pod.node), None)
    return AddedPods(pod.namespace, name.rpartition("/")[2], as_new(cls, node), count)


def _newest_pods(snapshot: Snapshot) -> dict[str, Pod]:
    """Map namespace/name of each controller, and of that controller's
    controller, to its newest pod."""
    above = {
        (c.kind, c.namespace, c.name): c.owner for c in snapshot.controllers if c.owner is not None
    }
    newest: dict[str, Pod] = {}
    for pod in sorted(snapshot.pods, key=lambda pod: (pod.created, pod.name)):
        owner = snapshot.cls(pod).owner
        if owner is None or pod.deleted:
            continue
        newest[f"{pod.namespace}/{owner.name}"] = pod
        top = above.get((owner.kind, pod.namespace, owner.name)) if owner.built_in else None
        if top is not None:
            newest[f"{pod.namespace}/{top.name}"] = pod
    return newest
