"""Range of results that random order gives upstream: its rules are replayed pod by pod with the
scheduler of infra/emulators, in many orders.

Upstream's nodes and its pods of equal priority come in a different order in every run, and three
recorded runs show only some of the possible results. This module finds further ones
(docs/reference/scale-up.md "Pending pods", "Estimator") and drafts the rows of
known_differences.md:

    python -m tests.differential.pod_order --seeds 0-499       a row per difference; takes minutes
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from infra.emulators.controllers.scheduler.cluster_view import ClusterView
from infra.emulators.controllers.scheduler.pod_and_node_info import PodView, read_node, read_pod
from infra.emulators.controllers.scheduler.predicates import Nowhere, judge
from tests.differential.compare import LEFT, Difference, differences, generator, seeds_of, upstream

_TRIES, _CUTOFF = 100, -10
_HOST = "kubernetes.io/hostname"


class PodOrderOutcome(msgspec.Struct, frozen=True, order=True):
    """The result of one replay. nodes: as upstream counts them, including existing ones that
    took a pod in the retry."""

    left: int
    nodes: int = 0
    pods: int = 0


def outcomes(seed: int, group: str, make: Any) -> Counter[PodOrderOutcome]:
    """Results of upstream's rules for one group (`LEFT`: for none), in
    orders drawn from the seed."""
    lists, manifest = make(seed)
    entry = next((each for each in manifest["nodeGroups"] if each["id"] == group), None)
    found: Counter[PodOrderOutcome] = Counter()
    for number in range(_TRIES):
        replay = _Replay(lists, random.Random(seed * 1000 + number))
        left = replay.fill()
        found[
            PodOrderOutcome(len(left))
            if entry is None
            else replay.estimate(left, entry, lists["workloads"])
        ] += 1
    return found


def left_in_our_order(seed: int, make: Any) -> int:
    """Pods left if upstream's round starts with our order: nodes by name, pods
    by priority, age and name."""
    return len(_Replay(make(seed)[0], None).fill())


def replayed(lists: Any, manifest: Any, draw: random.Random) -> dict[str, PodOrderOutcome]:
    """Result of one run of upstream's rules, for no group (`LEFT`) and for each group."""
    replay = _Replay(lists, draw)
    left = replay.fill()
    return {
        LEFT: PodOrderOutcome(len(left)),
        **{
            entry["id"]: replay.estimate(left, entry, lists["workloads"])
            for entry in manifest["nodeGroups"]
        },
    }


class _Replay:
    def __init__(self, lists: Any, draw: random.Random | None) -> None:
        self._draw = draw or random.Random(0)
        nodes, pods = (
            [read_node(node) for node in lists["nodes"]],
            [read_pod(pod) for pod in lists["pods"]],
        )
        self._world = ClusterView(nodes, [pod for pod in pods if pod.node])
        self._names = [node.name for node in nodes]
        self._names.sort()
        self._queue = [pod for pod in pods if not pod.node and pod.priority >= _CUTOFF]
        self._queue.sort(key=lambda pod: (pod.created, pod.namespace, pod.name))
        if draw is not None:
            draw.shuffle(self._names)
            draw.shuffle(self._queue)
        self._queue.sort(key=lambda pod: -pod.priority)

    def fill(self) -> list[PodView]:
        """Fills existing nodes; each search starts after the last hit, and pods equal to
        a failed one are skipped."""
        failed: set[bytes] = set()
        left, at = [], 0
        for pod in self._queue:
            order = self._names[at:] + self._names[:at]
            on = None if _look(pod) in failed else self._first(pod, order)
            if on is None:
                failed.add(_look(pod))
                left.append(pod)
            else:
                self._world.place(pod, on)
                at = (self._names.index(on) + 1) % len(self._names)
        return left

    def _first(self, pod: PodView, names: Sequence[str]) -> str | None:
        verdict = judge(pod, self._world)
        if isinstance(verdict, Nowhere):
            return None
        return next((name for name in names if not verdict(self._world.nodes[name])), None)

    def estimate(self, left: list[PodView], entry: Any, workloads: Any) -> PodOrderOutcome:
        """Replays the binpacking estimator."""
        daemons = [
            read_pod(
                {
                    "metadata": {
                        **each["spec"]["template"]["metadata"],
                        "name": each["metadata"]["name"],
                        "namespace": each["metadata"]["namespace"],
                    },
                    "spec": each["spec"]["template"]["spec"],
                }
            )
            for each in workloads
            if each["kind"] == "DaemonSet"
        ]
        groups: dict[bytes, list[PodView]] = {}
        for pod in left:
            groups.setdefault(_look(pod), []).append(pod)
        fork = self._fork()
        fork._join("probe", entry, daemons)
        chosen = [pods for pods in groups.values() if fork._first(pods[0], ["probe"]) is not None]
        self._draw.shuffle(chosen)
        offer = read_node(entry["template"]).allocatable
        chosen.sort(
            key=lambda pods: (
                -sum(pods[0].requests.get(name, 0) / offer[name] for name in ("cpu", "memory"))
            )
        )
        made: list[str] = []
        used: Counter[str] = Counter()
        for pods in chosen:
            self._pack(pods, made, used, entry, daemons)
        return PodOrderOutcome(len(left), len(used), sum(used.values()))

    def _fork(self) -> _Replay:
        fork = object.__new__(_Replay)
        fork._draw, fork._names, fork._queue = self._draw, self._names, self._queue
        fork._world = ClusterView(
            self._world.nodes.values(), [pod for _, pod in self._world.placed()]
        )
        return fork

    def _join(self, name: str, entry: Any, daemons: Sequence[PodView]) -> None:
        template = entry["template"]
        meta = {
            **template["metadata"],
            "name": name,
            "labels": {**template["metadata"]["labels"], _HOST: name},
        }
        self._world.join(read_node({**template, "metadata": meta}))
        for pod in daemons:
            self._world.place(pod, name)

    def _pack(
        self,
        pods: Sequence[PodView],
        made: list[str],
        used: Counter[str],
        entry: Any,
        daemons: Sequence[PodView],
    ) -> None:
        searching = True  # over all new nodes, until one pod fits on none
        for pod in pods:
            on = self._first(pod, made if searching else made[-1:])
            searching = searching and on is not None
            if on is None and made and self._spreads(pod, made[-1]):
                on = self._first(
                    pod, self._draw.sample(list(self._world.nodes), len(self._world.nodes))
                )
            if on is None:
                if (made and not used[made[-1]]) or len(made) >= entry["max"] - entry["size"]:
                    return
                made.append(f"new-{len(made)}")
                self._join(made[-1], entry, daemons)
                on = self._first(pod, made[-1:])
            if on is None:
                return
            self._world.place(pod, on)
            used[on] += 1

    def _spreads(self, pod: PodView, on: str) -> bool:
        """Whether the node rejects the pod because of its spread over host names."""
        verdict = judge(pod, self._world)
        reasons = [] if isinstance(verdict, Nowhere) else verdict(self._world.nodes[on])
        return any("spread" in reason for reason in reasons) and any(
            each.topology_key == _HOST for each in pod.spread
        )


def _look(pod: PodView) -> bytes:
    """Pods of one equivalence group."""
    owner = pod.raw["metadata"]["ownerReferences"][0]["uid"]
    return msgspec.json.encode((pod.namespace, pod.labels, owner, pod.raw["spec"]), order="sorted")


def draft(found: Difference, seen: Counter[PodOrderOutcome], ordered: int) -> str:
    """Drafts the likely reason, as far as a replay can show it. ordered: `left_in_our_order`."""
    if found.group == LEFT:
        return _about_left(found.left, sorted({outcome.left for outcome in seen}), ordered)
    mine = PodOrderOutcome(found.left, found.ours.nodes, found.ours.pods)
    if seen[mine]:
        return (
            f"Chance: upstream's own rules come to this in {seen[mine]} of {_TRIES} orders of "
            "nodes and equal pods."
        )
    rest, theirs = mine.left - mine.pods, [outcome.left - outcome.pods for outcome in seen]
    beaten = sum(rest <= other for other in theirs)
    figures = ", ".join(f"{o.nodes} for {o.pods} of {o.left}" for o, _ in seen.most_common(2))
    if found.left < min(found.theirs_left) and beaten:
        return (
            f"Existing nodes take more here: {rest} pods have no place in the end; replayed, "
            "upstream leaves "
            f"{min(theirs)} to {max(theirs)}."
        )
    if not any(
        (figure.nodes, figure.pods) == (o.nodes, o.pods) for figure in found.theirs for o in seen
    ):
        return f"Not explained: the rules of upstream, replayed, come to {figures}."
    if beaten and rest <= min(theirs):
        return f"As many pods have a place in the end; {figures} replayed."
    return (
        f"Worse: {rest} pods have no place in the end; replayed, upstream leaves {min(theirs)} to "
        f"{max(theirs)}."
    )


def _about_left(ours: int, lefts: list[int], ordered: int) -> str:
    span = f"{lefts[0]} to {lefts[-1]}" if len(lefts) > 1 else f"{lefts[0]}"
    if lefts[0] <= ours <= lefts[-1]:
        return f"Chance: {span} are left, by the order of nodes and of equal pods."
    if ordered >= ours:
        return (
            "Worse: pods by age and name, where upstream's order is chance; replayed, it leaves "
            f"{span}."
        )
    return (
        f"Worse: first fit by name; going round the nodes, as upstream does, leaves {ordered} of "
        "the same queue."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential.pod_order",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0-499", help="N or FIRST-LAST")
    cases, make = upstream(), generator().make
    for seed in seeds_of(parser.parse_args(arguments).seeds):
        for found in differences(seed, cases[seed], make):
            why = draft(found, outcomes(seed, found.group, make), left_in_our_order(seed, make))
            theirs = " or ".join(map(str, found.theirs))
            print(f"| {seed} | `{found.group}` | {found.ours} | {theirs} | {why} |", flush=True)


if __name__ == "__main__":
    main()
