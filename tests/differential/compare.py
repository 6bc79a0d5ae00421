"""Compares our options with those of the upstream autoscaler on the same random clusters
(../shared/differential).

Each node group is evaluated alone, as in upstream's estimator: the maximum of every other group is
its size. Upstream was run three times per cluster, since it orders groups and ties randomly;
agreement with one of its runs is enough.

    python -m tests.differential.compare --seeds 0-99       prints each difference in a
                                                            line, and the count by kind
"""

from __future__ import annotations

import argparse
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.property.snapshot_reader import read
from tests.reference_data import SHARED

NOW = 1_780_000_000.0  # long after the objects were created, so that no pod is young
LEFT = "left"  # used instead of a group name for the pods that existing nodes do not take
_POLICY = Policy(name="differential")


class Figure(msgspec.Struct, frozen=True, order=True):
    """New nodes, and the pods placed because of them."""

    nodes: int
    pods: int

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.pods} pods"


class Difference(msgspec.Struct, frozen=True, order=True):
    """A case in which our result neither equals one of upstream's nor is better. `LEFT`: pods
    counts those that are left."""

    seed: int
    group: str
    ours: Figure
    theirs: tuple[Figure, ...]
    left: int = 0
    theirs_left: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of difference in one or two words."""
        if self.group == LEFT:
            return "more pods left by existing nodes"
        if self.ours.pods < min(figure.pods for figure in self.theirs):
            return "no option" if not self.ours.pods else "fewer pods"
        return "more nodes"

    def __str__(self) -> str:
        return (
            f"seed {self.seed} {self.group}: {self.kind}: ours {self.ours}; "
            f"upstream {' or '.join(map(str, self.theirs))}; before it were left {self.left}, "
            f"upstream {' or '.join(map(str, self.theirs_left))}"
        )


def as_good(ours: Figure, theirs: Figure) -> bool:
    """Whether more pods are placed, or as many on no more nodes."""
    return ours.pods > theirs.pods or (ours.pods == theirs.pods and ours.nodes <= theirs.nodes)


def upstream() -> dict[int, dict[str, Any]]:
    """Upstream's decisions by seed."""
    answers = msgspec.json.decode((SHARED / "differential" / "upstream-scale-up.json").read_bytes())
    return {int(seed): case for seed, case in answers["cases"].items()}


def generator() -> ModuleType:
    """The program that generated the clusters."""
    path = SHARED / "differential" / "random_clusters.py"
    spec = importlib.util.spec_from_file_location("random_clusters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def growing(snapshot: Snapshot, group: str) -> Plan:
    """The plan if only this group may scale up; with an unknown name no group may."""
    groups = tuple(
        g if g.id == group else msgspec.structs.replace(g, max=max(g.min, g.target))
        for g in snapshot.groups
    )
    return plan_cluster(
        msgspec.structs.replace(snapshot, groups=groups), _POLICY, Memory(), NOW, 0
    )[0]


def left_of(plan: Plan) -> int:
    """Pods without a placement."""
    return sum(len(verdict.pods) for verdict in plan.unschedulable)


def figure(plan: Plan, left: int) -> Figure:
    """left: the pods that existing nodes alone would leave pending."""
    return Figure(sum(up.to_size - up.from_size for up in plan.scale_ups), left - left_of(plan))


def differences(seed: int, case: Any, make: Any) -> Iterator[Difference]:
    """All cases of one cluster in which our result is worse."""
    lists, manifest = make(seed)
    snapshot = read(lists, manifest, NOW)
    left = left_of(growing(snapshot, ""))
    if left > max(case["left"]):
        theirs_left = tuple(sorted(case["left"]))
        yield Difference(
            seed,
            LEFT,
            Figure(0, left),
            tuple(Figure(0, each) for each in theirs_left),
            left,
            theirs_left,
        )
    for group, options in sorted(case["options"].items()):
        theirs = tuple(sorted(Figure(*each) for each in options))
        ours = figure(growing(snapshot, group), left)
        if not any(as_good(ours, each) for each in theirs):
            yield Difference(seed, group, ours, theirs, left, tuple(sorted(case["left"])))


def seeds_of(text: str) -> Iterable[int]:
    """Parses `7` or `0-99`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the differences; returns 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0-499", help="N or FIRST-LAST")
    args = parser.parse_args(arguments)
    cases, make, kinds, options = upstream(), generator().make, Counter[str](), 0
    for seed in seeds_of(args.seeds):
        options += len(cases[seed]["options"]) + 1
        try:
            found = list(differences(seed, cases[seed], make))
        except Exception as error:  # one cluster that crashes the planner must not hide the others
            kinds[f"raised {type(error).__name__}"] += 1
            print(f"seed {seed}: raised {type(error).__name__}: {error}")
            continue
        for each in found:
            kinds[each.kind] += 1
            print(each)
    print(f"{options} answers compared, {sum(kinds.values())} differences", dict(kinds))
    return int(bool(kinds))


if __name__ == "__main__":
    raise SystemExit(main())
