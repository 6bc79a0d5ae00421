"""Corrupts one object of a vendor's answers, chosen by a seed, and checks the
observation that results.

The emulator itself is unchanged: only the bytes of its answers change, the same object in the same
way in each call of an observation, so that a list that is read twice is corrupted twice.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.snapshot import ObservedGroups
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.kit.base import Observation
from tests.property.corrupted_objects import HOSTILE, spoil

Lists = Callable[[list[Any]], Iterator[list[Any]]]
"""[an answer's body] -> the lists in it that hold objects of one kind; the argument itself
if the body is an object."""

MOST = 2**31 - 1  # for a size; Kubernetes and the vendors count in 32 bits
_LARGEST = 2**63 - 1  # for a resource in a template
_MORE = 100_000  # bytes that a corrupted object may add to an observation

# JSON that Python's own values cannot be encoded to: infinite numbers, half a surrogate pair,
# endlessly nested values.
RAW: tuple[str, ...] = (
    "1e999",
    "-1e999",
    "9" * 5_000,
    "1e-999",
    '"\\ud800"',
    '"a\\udfffb"',
    '"\\u0000"',
    "[" * 3_000 + "]" * 3_000,
    '{"a":' * 3_000 + "1" + "}" * 3_000,
)


@dataclass(frozen=True)
class SpoiltKind:
    """A kind of object. lists: where answers hold such objects. identity: the keys on the path to
    its id. sizes: its content decides its group's size or bounds. shared: it may concern several
    groups. owned: whether the rest of it names its owner; without that, no reader can know which
    groups it belonged to. left: whether it says, readably, that it does not belong to the
    victim."""

    lists: Lists
    identity: tuple[str, ...]
    sizes: bool = False
    shared: bool = False
    owned: Callable[[Any], bool] = lambda _: True
    left: Callable[[Any], bool] = lambda _: False


@dataclass
class Spoiler:
    """An edit of answers (infra/local/vendor/server.py). marks: texts, one of which each object of
    the victim contains. others: ids of other objects of the kind. made: the corrupted object as it
    was sent; met: how often."""

    kind: SpoiltKind
    seed: str
    marks: Sequence[str]
    made: Any = None
    met: int = 0
    claimed: Any = None
    robbed: str = "null"

    def __call__(self, body: bytes) -> bytes:
        """Returns the answer with the victim's object corrupted, if it has one."""
        try:
            root = [json.loads(body)]
        except ValueError:
            return body
        draw = random.Random(self.seed)
        for items in self.kind.lists(root):
            ours = [
                at
                for at, each in enumerate(items)
                if any(mark in json.dumps(each) for mark in self.marks)
            ]
            if ours:
                self.met += 1
                raw = self._spoil(items, draw.choice(ours), draw)
                text = json.dumps(root[0])
                return (text.replace('"@raw@"', raw) if raw else text).encode()
        return body

    def _spoil(self, items: list[Any], at: int, draw: random.Random) -> str:
        """Changes one item; returns the text that stands for the marker in it, if there is one."""
        how, thing, raw = draw.random(), copy.deepcopy(items[at]), ""
        if how < 0.08:
            thing = copy.deepcopy(draw.choice(HOSTILE))
        elif how < 0.25:
            raw = draw.choice(RAW)
            holder = draw.choice([each for each in _mappings(thing) if each])
            holder[draw.choice(sorted(holder))] = "@raw@"
        elif how < 0.40:
            self._rename(thing, [each for index, each in enumerate(items) if index != at], draw)
        else:
            spoil(thing, draw)
        if 0.40 <= how < 0.46:
            items.insert(at, thing)  # a second one, in addition to the first
        else:
            items[at] = thing
        self.made = thing
        return raw

    def _rename(self, thing: Any, others: Sequence[Any], draw: random.Random) -> None:
        """Gives it the id of another object of the list, or a hostile one."""
        *way, last = self.kind.identity
        known = [each for each in others if _at(each, (*way, last)) is not None]
        other = draw.choice(known) if known and draw.random() < 0.7 else None
        self.claimed, self.robbed = draw.choice(HOSTILE), json.dumps(other)
        if other is not None:
            self.claimed = _at(other, (*way, last))
        holder = _at(thing, tuple(way))
        if isinstance(holder, dict):
            holder[last] = copy.deepcopy(self.claimed)


def _at(thing: Any, way: Sequence[str]) -> Any:
    for key in way:
        thing = thing.get(key) if isinstance(thing, dict) else None
    return thing


def _mappings(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(each for part in value.values() for each in _mappings(part))]
    return [each for part in value for each in _mappings(part)] if isinstance(value, list) else []


# -- checks of an observation


def _undated(group: NodeGroup) -> NodeGroup:
    """Returns the group as if its price had been read at no particular time."""
    return msgspec.structs.replace(group, priced_at=0.0)


def problems(good: Observation, seen: Observation, victim: str, spoiler: Spoiler) -> list[str]:
    """Returns the errors of an observation, compared with that of the same emulator
    without the corrupted object."""
    before, after = (
        {each.id: _undated(each) for each in observed.groups} for observed in (good, seen)
    )
    found = [f"{each.id}: {text}" for each in seen.groups for text in _unsafe(each)]
    if len(after) < len(seen.groups):
        found.append("two groups have one id")
    if len(msgspec.json.encode(seen)) > len(msgspec.json.encode(good)) + _MORE:
        found.append("the observation is larger by more than the object may add")
    for name, group in before.items():
        now = after.get(name)
        held = now is None or bool(now.error)
        claimed = spoiler.claimed is not None and _named(spoiler, group)
        if name != victim and not spoiler.kind.shared and not claimed and now != group:
            if spoiler.kind.owned(spoiler.made) or not held:
                found.append(f"{name}, another group, changed")
        elif not held and now is not None and (name != victim or not spoiler.kind.sizes):
            found += [f"{name}: {text}" for text in _miscounted(group, now, spoiler)]
    return found


def _named(spoiler: Spoiler, group: NodeGroup) -> bool:
    """Tells whether the object whose id was taken belongs to the group: one names the other."""
    return spoiler.robbed != "null" and (
        str(spoiler.claimed) in msgspec.json.encode(group).decode()
        or f'"{group.id}"' in spoiler.robbed
    )


def _unsafe(group: NodeGroup) -> Iterator[str]:
    for name, number in {"min": group.min, "max": group.max, "target": group.target}.items():
        if type(number) is not int or not 0 <= number <= MOST:
            yield f"{name} is {str(number)[:40]}"
    if not (isinstance(group.price, float) and 0.0 <= group.price < 1e9):
        yield f"price is {group.price!r}"
    for each in group.instances:
        if not (isinstance(each.created, float) and 0.0 <= each.created < 1e12):
            yield f"an instance was created at {each.created!r}"
    for parts in (
        (group.template.capacity, group.template.allocatable) if group.template is not None else ()
    ):
        for name, amount in parts.items():
            if type(amount) is not int or not 0 <= amount <= _LARGEST:
                yield f"the template has {name} {str(amount)[:40]}"


def _miscounted(before: NodeGroup, now: NodeGroup, spoiler: Spoiler) -> Iterator[str]:
    """Finds a group that is not blocked although an object that does not concern
    sizes has changed its size."""
    if now.target != before.target and not spoiler.kind.left(spoiler.made):
        yield f"target was {before.target} and is {now.target}, without an error"
    if (now.min, now.max) != (before.min, before.max):
        yield (
            f"bounds were {before.min} to {before.max} and are {now.min} to {now.max}, without an "
            "error"
        )


def planned(seen: Observation, nodes: Sequence[Any], now: float) -> list[str]:
    """Returns the groups that a pass would operate on when no pod is pending. Raises
    what the planner raises."""
    snapshot = SnapshotBuilder().snapshot("suite", now, ObservedGroups(seen.groups))
    snapshot = msgspec.structs.replace(snapshot, nodes=tuple(nodes))
    plan, memory = plan_cluster(
        snapshot, Policy(name="suite"), Memory(first_seen=now - 86_400.0), now, 1
    )
    msgspec.json.encode((plan, memory))
    return [each.spec.group for each in plan.operations]


# -- paths of objects in answers


def key(*path: str) -> Lists:
    """Returns the list under these keys of an answer's object; lists on the
    path are descended into."""

    def lists(root: list[Any]) -> Iterator[list[Any]]:
        holders = root
        for name in path[:-1]:
            inside = [each.get(name) for each in holders if isinstance(each, dict)]
            holders = [
                part for each in inside for part in (each if isinstance(each, list) else [each])
            ]
        for each in holders:
            if isinstance(each, dict) and isinstance(each.get(path[-1]), list):
                yield each[path[-1]]

    return lists


def whole(*names: str) -> Lists:
    """Matches answers that are one object with these keys."""

    def lists(root: list[Any]) -> Iterator[list[Any]]:
        if isinstance(root[0], dict) and set(names) <= root[0].keys():
            yield root

    return lists


def listed(kind: str) -> Lists:
    """Returns the items of a list of that kind, as named by the list or by its items."""

    def lists(root: list[Any]) -> Iterator[list[Any]]:
        body = root[0]
        if (
            isinstance(body, dict)
            and isinstance(items := body.get("items"), list)
            and items
            and (body.get("kind") == f"{kind}List" or items[0].get("kind") == kind)
        ):
            yield items

    return lists


def plain(*names: str) -> Lists:
    """Matches answers that are a list of objects with these keys."""

    def lists(root: list[Any]) -> Iterator[list[Any]]:
        body = root[0]
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], dict)
            and set(names) <= body[0].keys()
        ):
            yield body

    return lists


def _tagged(server: Any) -> bool:
    """Tells whether the tags of a server of Cherry Servers are readable."""
    tags = server.get("tags") if isinstance(server, dict) else 0
    return tags in (None, [], "") or (
        isinstance(tags, dict)
        and all(
            isinstance(tags.get(name, ""), str | int | float)
            and not isinstance(tags.get(name), bool)
            for name in TAGS
        )
    )


def _retagged(server: Any) -> bool:
    """Tells whether its tags name another pool, or none."""
    return (
        _tagged(server)
        and any(
            not isinstance(server["tags"], dict) or server["tags"].get(name) != mine
            for name, mine in TAGS.items()
        )
        if server.get("tags")
        else _tagged(server)
    )


TAGS = {"k8s-cluster": "ours", "k8s-nodepool": "bravo"}


KINDS: Mapping[str, Mapping[str, SpoiltKind]] = {
    "alicloud": {
        "ScalingGroup": SpoiltKind(key("ScalingGroups"), ("ScalingGroupId",), sizes=True),
        "ScalingInstance": SpoiltKind(key("ScalingInstances"), ("InstanceId",)),
        "ScalingConfiguration": SpoiltKind(
            key("ScalingConfigurations"), ("ScalingConfigurationId",)
        ),
        "InstanceType": SpoiltKind(key("InstanceTypes", "InstanceType"), ("InstanceTypeId",)),
    },
    "cherryservers": {
        "Server": SpoiltKind(plain("id", "hostname"), ("id",), owned=_tagged, left=_retagged),
        "Plan": SpoiltKind(whole("slug", "pricing"), ("slug",)),
    },
    "exoscale": {
        "InstancePool": SpoiltKind(key("instance-pools"), ("id",), sizes=True),
        "Instance": SpoiltKind(key("instances"), ("id",)),
        "SksCluster": SpoiltKind(key("sks-clusters"), ("id",), sizes=True, shared=True),
        "Nodepool": SpoiltKind(key("sks-clusters", "nodepools"), ("id",), sizes=True),
        "InstanceType": SpoiltKind(whole("cpus", "family"), ("id",)),
    },
    "huaweicloud": {
        "NodePool": SpoiltKind(listed("NodePool"), ("metadata", "uid"), sizes=True),
        "Node": SpoiltKind(listed("Node"), ("metadata", "uid")),
        "Flavor": SpoiltKind(key("flavors"), ("name",)),
    },
    "clusterapi": {
        "MachineDeployment": SpoiltKind(
            listed("MachineDeployment"), ("metadata", "name"), sizes=True
        ),
        "MachineSet": SpoiltKind(listed("MachineSet"), ("metadata", "name")),
        "Machine": SpoiltKind(listed("Machine"), ("metadata", "name")),
    },
}
