"""Our options beside those that the upstream autoscaler showed on the same random clusters (../shared/differential).

Each node group is asked alone, as upstream's estimator asks it: every other group's max is its size. Upstream was run
three times per cluster, since its order of groups and of ties is random; agreeing with one of its runs is agreeing.

    python -m tests.differential.compare --seeds 0-99       the differences, one a line, and their number by kind
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
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from tests.property.snapshot_reader import read
from tests.reference_data import SHARED

NOW = 1_780_000_000.0  # long after the objects were made, so that nothing is young
LEFT = "left"  # stands for a group's name where it is about the pods that existing nodes do not take
_POLICY = Policy(name="differential")


class Figure(msgspec.Struct, frozen=True, order=True):
    """New nodes, and the pods that get a place through them."""

    nodes: int
    pods: int

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.pods} pods"


class Difference(msgspec.Struct, frozen=True, order=True):
    """Where our answer is neither one of upstream's nor better. `LEFT`: pods counts those that are left."""

    seed: int
    group: str
    ours: Figure
    theirs: tuple[Figure, ...]
    left: int = 0
    theirs_left: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """In a word or two."""
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
    """More pods; or as many on no more nodes."""
    return ours.pods > theirs.pods or (ours.pods == theirs.pods and ours.nodes <= theirs.nodes)


def upstream() -> dict[int, dict[str, Any]]:
    """Upstream's decisions by seed."""
    answers = msgspec.json.decode((SHARED / "differential" / "upstream-scale-up.json").read_bytes())
    return {int(seed): case for seed, case in answers["cases"].items()}


def generator() -> ModuleType:
    """The program that made the clusters."""
    path = SHARED / "differential" / "random_clusters.py"
    spec = importlib.util.spec_from_file_location("random_clusters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def growing(snapshot: Snapshot, group: str) -> Plan:
    """The plan if only this group may grow; no group of that name: if none may."""
    groups = tuple(
        g if g.id == group else msgspec.structs.replace(g, max=max(g.min, g.target)) for g in snapshot.groups
    )
    return plan_cluster(msgspec.structs.replace(snapshot, groups=groups), _POLICY, Memory(), NOW, 0)[0]


def left_of(plan: Plan) -> int:
    """Pods without a place."""
    return sum(len(verdict.pods) for verdict in plan.unschedulable)


def figure(plan: Plan, left: int) -> Figure:
    """left: the pods that existing nodes alone would leave."""
    return Figure(sum(up.to_size - up.from_size for up in plan.scale_ups), left - left_of(plan))


def differences(seed: int, case: Any, make: Any) -> Iterator[Difference]:
    """Everything about one cluster in which ours is not as good."""
    lists, manifest = make(seed)
    snapshot = read(lists, manifest, NOW)
    left = left_of(growing(snapshot, ""))
    if left > max(case["left"]):
        theirs_left = tuple(sorted(case["left"]))
        yield Difference(seed, LEFT, Figure(0, left), tuple(Figure(0, each) for each in theirs_left), left, theirs_left)
    for group, options in sorted(case["options"].items()):
        theirs = tuple(sorted(Figure(*each) for each in options))
        ours = figure(growing(snapshot, group), left)
        if not any(as_good(ours, each) for each in theirs):
            yield Difference(seed, group, ours, theirs, left, tuple(sorted(case["left"])))


def seeds_of(text: str) -> Iterable[int]:
    """`7` or `0-99`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints; 1 if there is any difference."""
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
        except Exception as error:  # one cluster that breaks the planner must not hide the others
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
