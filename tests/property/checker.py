"""Checks the placements of plans with the scheduler of infra/emulators, which shares
no code with the planner.

    python -m tests.property.checker --seeds 0-500 [-v]         failures by kind; -v: each of them
    python -m tests.property.checker --seeds 0-500 --draws 6    results of six scheduler draws per
                                                                plan
    python -m tests.property.checker --seeds 0-500 --draws 6 --settled    the same after pods were
                                                                          bound to existing
    nodes

A failure's cluster for the command line: python -m tests.property.clusters --seed N --out DIR
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import cache

import msgspec

from chalicelib.cli.option_overrides import with_options
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Policy
from tests.property.clusters import POLICY, RandomCluster, make
from tests.property.objects import NOW
from tests.property.plan_check import UNSURE, Trial
from tests.property.scheduled_cluster import settled
from tests.property.scheduler_draws import Tally
from tests.property.snapshot_reader import read

ORDER = "order: another order of input, another plan"
AGAIN = "again: the same input, another plan"


class Failure(msgspec.Struct, frozen=True):
    """One wrong placement or reason."""

    seed: int
    kind: str
    detail: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.kind}: {self.detail}   "
            f"[python -m tests.property.clusters --seed {self.seed} --out DIR]"
        )


@cache
def _policy() -> Policy:
    return load(POLICY, place="policy.yaml")[0]


def policy_of(cluster: RandomCluster) -> Policy:
    """The policy of a cluster, with its options."""
    return with_options(_policy(), cluster.settings)


def plan_for(cluster: RandomCluster, shuffle: random.Random | None = None) -> Plan:
    """The plan for a cluster read by the production reader. shuffle: seed of the input order."""
    policy = policy_of(cluster)
    snapshot = read(cluster.lists, cluster.manifest, NOW, shuffle=shuffle)
    return plan_cluster(snapshot, policy, cluster.memory(), NOW, 0)[0]


def judged(
    cluster: RandomCluster, *, reorder: bool = False, at_once: bool = False
) -> list[Failure]:
    """All errors of the plan for a cluster. reorder: plan twice more, once in another order;
    at_once: also what would be impossible if all new nodes were there from the start."""
    plan = plan_for(cluster)
    trial = Trial(cluster, plan)
    found = [*trial.found(), *(trial.at_once() if at_once else ())]
    if reorder:
        written = msgspec.json.encode(plan)
        if msgspec.json.encode(plan_for(cluster)) != written:
            found.append((AGAIN, ""))
        if msgspec.json.encode(plan_for(cluster, random.Random(cluster.seed))) != written:
            found.append((ORDER, ""))
    return [Failure(cluster.seed, kind, detail) for kind, detail in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints failures by kind; returns 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.property.checker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0-500", help="N or FIRST-LAST")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each failure")
    parser.add_argument("--only", default="", help="print only kinds that begin so")
    parser.add_argument(
        "--at-once", action="store_true", help="also what fails if all new nodes were there at once"
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=0,
        metavar="N",
        help="only play each plan N times, the scheduler's queue and ties drawn by seed",
    )
    parser.add_argument(
        "--settled",
        action="store_true",
        help="with --draws: bind whoever fits existing nodes first",
    )
    parser.add_argument("--trace", action="store_true", help="print where something was raised")
    args = parser.parse_args(arguments)
    first, _, last = args.seeds.partition("-")
    seeds, started = range(int(first), int(last or first) + 1), time.process_time()
    if args.draws:
        return _play(seeds, args.draws, at_rest=args.settled, verbose=args.verbose)
    kinds: Counter[str] = Counter()
    for seed in seeds:
        try:
            found = judged(make(seed), reorder=seed % 5 == 0, at_once=args.at_once)
        except Exception as error:  # one cluster that crashes the planner must not hide the others
            found = [Failure(seed, f"raised {type(error).__name__}", str(error).partition("\n")[0])]
            if args.trace:
                traceback.print_exc()
        kinds.update({failure.kind for failure in found})
        for failure in found:
            if args.verbose and failure.kind.startswith(args.only):
                print(failure)
    for kind, count in kinds.most_common():
        print(f"{count:6d} clusters  {kind}")
    print(f"{len(seeds)} clusters in {time.process_time() - started:.1f} s of cpu")
    return int(bool(kinds.keys() - {UNSURE}))


def _play(seeds: Sequence[int], draws: int, *, at_rest: bool, verbose: bool) -> int:
    """Prints the results of all draws; returns 1 if a placement was not kept or
    a new node stayed empty."""
    total, started = Tally(), time.process_time()
    for seed in seeds:
        cluster = settled(make(seed), seed) if at_rest else make(seed)
        found = Trial(cluster, plan_for(cluster)).drawn(draws)
        total.add(found)
        if verbose and (found.unkept or found.among or found.empty):
            print(f"seed {seed}: {found}")
    print(f"{len(seeds)} clusters, {total}; {time.process_time() - started:.1f} s of cpu")
    return int(bool(total.unkept or total.among or total.empty))


if __name__ == "__main__":
    raise SystemExit(main())
