"""Prints how a deployment with many clusters behaves, and what a cluster costs there:
`python -m infra.simulation.many_clusters [--clusters N …]`.

Without arguments it prints the tables of docs/scale.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec

from infra.aws.cost import PASSES, per_cluster, ways
from infra.aws.cost_count import LIST, Counts, count
from infra.simulation.deployment_simulation import MOST_READ, MOST_WRITTEN, Outcome, SimulatedDeployment, simulated
from infra.tools.interruptible import run

FULL_BYTES, CHANGED_BYTES = 280_000, 24_000
"""Compressed bytes that a pass reads of 100 nodes and 1,500 pods (tests/benchmarks/test_pass.py)."""
TIMEOUT = 60.0
"""Seconds that the tick may take (.chalice/config.json)."""

SCENARIOS: tuple[tuple[str, SimulatedDeployment], ...] = (
    ("100 clusters", SimulatedDeployment(clusters=100)),
    ("500 clusters", SimulatedDeployment()),
    ("500, lists shared", SimulatedDeployment(shared=True)),
    ("500, passes of 4 to 5 s", SimulatedDeployment(full=5.0, changes=4.0, stored=4.4)),
    ("the same, concurrency 60", SimulatedDeployment(full=5.0, changes=4.0, stored=4.4, concurrency=60)),
    ("1,000 clusters, tick with 1,769 MB", SimulatedDeployment(clusters=1_000, tick_call=0.0075, concurrency=40)),
)


def dollars(what: SimulatedDeployment, outcome: Outcome, counts: Counts) -> tuple[float, float]:
    """Return the monthly dollars of one cluster: AWS, and the traffic of the cluster's cloud. counts: of a quiet
    minute."""
    minutes = what.minutes - what.unmeasured
    passes = outcome.passes / minutes / what.clusters * PASSES
    way = ways(counts, seconds=outcome.busy * minutes / max(1, outcome.passes))[-2]
    shared = passes * (LIST.put + LIST.get) if what.shared else 0.0
    read = FULL_BYTES * (1.0 - outcome.followed) + CHANGED_BYTES * outcome.followed
    return sum(per_cluster(way).values()) + shared, passes * read / 1e9 * LIST.egress


def _table(rows: Sequence[tuple[str, SimulatedDeployment, Outcome]], counts: Counts) -> list[str]:
    lines = [
        "| | Passes made | Late: half / 99 % / all | Tick | Processes | Read changes | Dollars: AWS | traffic |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, what, outcome in rows:
        minutes = what.minutes - what.unmeasured
        made = outcome.passes / minutes / what.clusters
        late = " / ".join(f"{outcome.late_at(share):.0f} s" for share in (0.5, 0.99, 1.0))
        tick = f"{outcome.tick:.0f} s" + (", too long" if outcome.tick >= TIMEOUT else "")
        aws, traffic = dollars(what, outcome, counts)
        lines.append(
            f"| {name} | {made:.0%} | {late} | {tick} | {outcome.started} | {outcome.followed:.0%} "
            f"| {aws:.2f} | {traffic:.2f} |"
        )
    return lines


def _keys(what: SimulatedDeployment, outcome: Outcome) -> list[str]:
    lines = [
        f"| Partition, {what.clusters} clusters | Units read, busiest second | written | Share of its limit |",
        "|---|---|---|---|",
    ]
    for each in outcome.keys:
        name = f"`{each.key}`" if each.key.startswith("!") else "the busiest cluster"
        lines.append(f"| {name} | {each.reads:.0f} | {each.writes:.0f} | {each.share:.1%} |")
    return [*lines, "", f"A partition serves {MOST_READ:,} units read and {MOST_WRITTEN:,} written in a second."]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    fields = {name: value for name, value in vars(given).items() if value is not None}
    scenarios = SCENARIOS if not fields else (("as asked", SimulatedDeployment(**fields)),)
    counts = count()
    rows = [(name, what, simulated(what)) for name, what in scenarios]
    shown = next((row for row in rows if row[1] == SimulatedDeployment()), rows[-1])
    sys.stdout.write("\n".join([*_table(rows, counts), "", *_keys(shown[1], shown[2])]) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.simulation.many_clusters", description=__doc__)
    for field in msgspec.structs.fields(SimulatedDeployment):
        flag = "--" + field.name.replace("_", "-")
        if field.type is bool:
            parser.add_argument(flag, action="store_true", default=None)
        else:
            parser.add_argument(flag, type=field.type)
    return parser


if __name__ == "__main__":
    run(main)
