"""Compares our unneeded nodes with those that the upstream autoscaler found on the
same half-empty clusters.

Upstream (../shared/differential, without limits) evaluated every candidate, five times per cluster,
because its random node order decides which pods use a budget or the last free place. Our result is
as good if it has as many nodes as upstream's best run.

    python -m tests.differential.scale_down --seeds 0-199     a line per cluster, then the
                                                              differences
    python -m tests.differential.scale_down --only-worse      rows for known_differences.md; reasons
                                                              are to be added
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.differential.compare import NOW, generator, seeds_of
from tests.property.snapshot_reader import read
from tests.reference_data import SHARED

#: : The first node in order uses the room and the budget: these reasons are compared as a
#: sum, all others one by one.
TRIED = "tried"
_TRIED = frozenset(
    {
        ReasonCode.NOT_UNNEEDED_LONG_ENOUGH.value,
        ReasonCode.NO_PLACE_TO_MOVE_PODS.value,
        ReasonCode.BLOCKED_BY_POD.value,
    }
)
_POLICY = Policy(name="differential")


class Down(msgspec.Struct, frozen=True, order=True):
    """Both results for one cluster. theirs: unneeded nodes of each run with a different set;
    tallies: nodes by reason, as far as they can be compared."""

    seed: int
    ours: int
    theirs: tuple[int, ...]
    our_tally: Mapping[str, int]
    their_tally: Mapping[str, int]

    @property
    def is_worse(self) -> bool:
        """Whether we found fewer nodes than upstream's best run."""
        return self.ours < max(self.theirs)

    @property
    def is_better(self) -> bool:
        """Whether we found more nodes than upstream's best run."""
        return self.ours > max(self.theirs)

    @property
    def row(self) -> tuple[int, str, str]:
        """Seed, our figure and upstream's figures, as in known_differences.md."""
        return (
            self.seed,
            nodes(self.ours),
            " or ".join(nodes(count) for count in sorted(set(self.theirs))),
        )

    def __str__(self) -> str:
        mark = "worse" if self.is_worse else "better" if self.is_better else "equal"
        return f"seed {self.row[0]}: {mark}: ours {self.row[1]}; upstream {self.row[2]}"


def nodes(count: int) -> str:
    """Formats a count as `1 nodes`, as in all tables of figures here."""
    return f"{count} nodes"


def upstream_down() -> dict[int, dict[str, Any]]:
    """Upstream's results by seed."""
    answers = msgspec.json.decode(
        (SHARED / "differential" / "upstream-scale-down.json").read_bytes()
    )
    return {int(seed): case for seed, case in answers["cases"].items()}


def cluster_of(seed: int, make: Any) -> tuple[Any, Any, Snapshot]:
    """Lists of objects and the manifest as generated, and as read."""
    lists, manifest = make(seed)
    return lists, manifest, read(lists, manifest, NOW)


def plan_of(snapshot: Snapshot) -> Plan:
    """A plan without limits: the default policy, every candidate simulated, no memory."""
    return plan_cluster(snapshot, _POLICY, Memory(), NOW, 0)[0]


def compared(seed: int, case: Any, make: Any) -> Down:
    """Compares one cluster. Nodes of groups at their minimum are left out, because
    upstream does not evaluate them."""
    _, _, snapshot = cluster_of(seed, make)
    plan = plan_of(snapshot)
    lowest = {
        instance.node
        for group in snapshot.groups
        if group.target <= group.min
        for instance in group.instances
    }
    ours = Counter(
        TRIED if verdict.node in plan.unneeded else _kind(verdict.reason.code.value)
        for verdict in plan.unremovable
        if verdict.node not in lowest
    )
    ours[TRIED] += len(set(plan.unneeded) - {verdict.node for verdict in plan.unremovable})
    theirs = Counter[str]()
    for words, count in (case["why"] or {}).items():
        theirs[_kind(words.partition("/")[0])] += count
    return Down(
        seed,
        len(plan.unneeded),
        tuple(len(each) for each in case["unneeded"]),
        dict(+ours),
        dict(+theirs),
    )


def _kind(code: str) -> str:
    return TRIED if code in _TRIED else code


def answers(seeds: Iterable[int]) -> Iterator[Down]:
    """The comparisons for these seeds."""
    cases, make = upstream_down(), generator().make_down
    for seed in seeds:
        yield compared(seed, cases[seed], make)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the comparisons; returns 1 if upstream is better in any of them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential.scale_down",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0-199", help="N or FIRST-LAST")
    parser.add_argument(
        "--only-worse", action="store_true", help="only where upstream finds more, as rows"
    )
    args = parser.parse_args(arguments)
    found = list(answers(seeds_of(args.seeds)))
    for each in found:
        if each.our_tally != each.their_tally:
            print(f"seed {each.seed}: reasons: ours {each.our_tally}; upstream {each.their_tally}")
        if args.only_worse and each.is_worse:
            print(f"| {' | '.join(map(str, each.row))} | |")
        elif not args.only_worse:
            print(each)
    worse, better = sum(each.is_worse for each in found), sum(each.is_better for each in found)
    print(
        f"{len(found)} clusters: {sum(each.ours for each in found)} unneeded nodes, upstream's "
        "best runs "
        f"{sum(max(each.theirs) for each in found)}; {worse} worse, {better} better"
    )
    return int(bool(worse))


if __name__ == "__main__":
    raise SystemExit(main())
