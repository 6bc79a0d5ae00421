"""Computes the monthly cost per cluster and per deployment: `python -m
infra.aws.cost > docs/cost.md`.

Counts come from the emulation and prices from a table (cost_count.py). The duration of functions on
Lambda has not been measured; it is an assumption, which the page states. A test compares the page
with the output of this module.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import msgspec

from chalicelib.runtime.log import logger
from infra.aws.alarms import PERMANENT, metrics_charged
from infra.aws.cost_count import AS_OF, LIST, NODES, PODS, SELDOM, Counts, count

MONTH = 2_628_000  # seconds
PASSES = MONTH / 60
QUEUES, QUEUES_IN_USE = 6, 2
# requests with which Lambda polls one queue: five pollers, 20 seconds per request
POLLS = MONTH / 20 * 5
LIMIT_SECRET, LIMIT_PARAMETER, LIMIT_DEPLOYMENT = 0.95, 0.50, 0.70
"""Dollars a month that the tests let nothing exceed."""
_POLICY_READ = 0.25  # units for which a tick reads 1 KB of a policy with those of all clusters
_PLATFORM = 310  # bytes that Lambda itself logs per invocation
# bytes of a pass that reads changes, with 100 nodes (tests/benchmarks/test_pass.py)
_CHANGES = 20_000
_TICK_SECONDS, _TICK_GB = 0.3, 0.5
_WATCH_SECONDS, _WATCH_GB = 0.05, 0.5
_CALLS = 5  # of an act function, to remove an empty node


class Way(msgspec.Struct, frozen=True):
    """One variant of the deployment. change: description. seconds, memory (GB): of a pass. secrets:
    per cluster. secret_reads: of all secrets in ten minutes. parameters: secrets are SSM
    parameters. log: bytes logged per minute. tick_reads, tick_log: units and bytes of a tick that
    do not depend on clusters; 0 in variants that count them with the cluster."""

    change: str
    arm: bool
    memory: float
    seconds: float
    series: int
    log: int
    reads: float
    writes: float
    secrets: int
    secret_reads: int
    queues: int
    parameters: bool = False
    tick_reads: float = 0.0
    tick_log: int = 0


def ways(counts: Counts, *, memory: float = 0.5, seconds: float = 1.0) -> tuple[Way, ...]:
    """Return the variants, each with one change more than the one before. memory, seconds: of a
    pass in the last variant. The first variant is the previous release as it was counted then: 28
    series, 13 write units, 10 read units, and two secrets that are read every minute. 4.05 and 13.1
    units were counted before a quiet pass wrote its lease alone."""
    steps = [
        Way(
            "the release before, x86-64, 1.73 GB",
            arm=False,
            memory=1.73,
            seconds=2.0,
            series=28,
            log=7305,
            reads=10,
            writes=13,
            secrets=2,
            secret_reads=20,
            queues=QUEUES,
        )
    ]

    def change(words: str, **changed: object) -> None:
        steps.append(msgspec.structs.replace(steps[-1], change=words, **changed))

    change("metrics: `summary`", series=counts.series, log=counts.log)
    change("arm64", arm=True)
    change(f"reconcile with {memory * 1024:.0f} MB", memory=memory)
    change(f"a pass of {seconds:g} s", seconds=seconds)
    change("4.05 units written in a quiet minute, 13.1 read", reads=13.1, writes=4.05)
    change(
        f"{counts.writes:g} units written, {counts.reads:g} read",
        reads=counts.reads,
        writes=counts.writes,
    )
    change(
        "what a tick reads and logs once for all clusters: counted per deployment",
        reads=counts.reads - counts.tick_reads + _POLICY_READ,
        log=counts.log - counts.tick_log,
        tick_reads=counts.tick_reads,
        tick_log=counts.tick_log,
    )
    change(
        "one secret per cluster, read every ten minutes",
        secrets=1,
        secret_reads=counts.secret_reads,
    )
    change("queues of the providers in use (Cluster API)", queues=QUEUES_IN_USE)
    change("a parameter of SSM in place of the secret", parameters=True)
    return tuple(steps)


def per_cluster(way: Way) -> dict[str, float]:
    """Return dollars per month, by part, for one cluster with a scan interval of 60 s."""
    second = LIST.second_arm if way.arm else LIST.second_x86
    secret_reads = PASSES / 10 * way.secret_reads
    secrets = (
        secret_reads * LIST.decrypt
        if way.parameters
        else way.secrets * LIST.secret + secret_reads * LIST.secret_read
    )
    return {
        "Lambda: passes": PASSES * (way.seconds * way.memory * second + LIST.call),
        "DynamoDB": PASSES * (way.reads * LIST.read + way.writes * LIST.write),
        "SQS: send, receive, delete": PASSES * 3 * LIST.queue,
        "secrets": secrets,
        "CloudWatch: metrics": way.series * LIST.series,
        "CloudWatch: logs": PASSES * (way.log + _PLATFORM) / 1e9 * (LIST.ingest + LIST.keep),
    }


def per_deployment(way: Way) -> dict[str, float]:
    """Return dollars per month, by part, that do not depend on the number of clusters."""
    second = LIST.second_arm if way.arm else LIST.second_x86
    return {
        "Lambda: ticks": PASSES * (_TICK_SECONDS * _TICK_GB * second + LIST.call),
        "DynamoDB: reads of ticks": PASSES * way.tick_reads * LIST.read,
        f"SQS: Lambda's own polling of {way.queues} queues": way.queues * POLLS * LIST.queue,
        "CloudWatch: logs of ticks": PASSES
        * (way.tick_log + 2 * _PLATFORM)
        / 1e9
        * (LIST.ingest + LIST.keep),
    }


def on_request() -> dict[str, float]:
    """Return dollars per month, by part, of what a deployment has on request only."""
    one = metrics_charged(("clusterapi",))
    every = metrics_charged()
    return {
        f"alarms, one provider in use: {one} metrics": one * LIST.alarm,
        f"alarms, all providers in use: {every} metrics": every * LIST.alarm,
        f"the {len(PERMANENT)} metrics of the log that alarms always need": len(PERMANENT)
        * LIST.series,
        "a CloudWatch dashboard, after the three free ones of an account": LIST.dashboard,
    }


def watch() -> float:
    """Return dollars for the message that looks after one call of an act function: sent, received,
    deleted, and a call that reads one row."""
    return 3 * LIST.queue + LIST.call + _WATCH_SECONDS * _WATCH_GB * LIST.second_arm + LIST.read


def page(counts: Counts, notified: Counts) -> str:
    """Return the text of docs/cost.md. notified: the counts with notifications."""
    return "\n".join(_lines(counts, notified)) + "\n"


def of_notifications(counts: Counts, notified: Counts) -> float:
    """Return dollars per month of the tables' units that notifications of a quiet cluster take."""
    reads, writes = notified.reads - counts.reads, notified.writes - counts.writes
    return PASSES * (reads * LIST.read + writes * LIST.write)


def _lines(counts: Counts, notified: Counts) -> Iterator[str]:
    steps = ways(counts)
    yield from (
        _HEAD.format(
            secret=sum(per_cluster(steps[-2]).values()),
            parameter=sum(per_cluster(steps[-1]).values()),
            deployment=sum(per_deployment(steps[-1]).values()),
            limit_secret=LIMIT_SECRET,
            limit_parameter=LIMIT_PARAMETER,
            limit_deployment=LIMIT_DEPLOYMENT,
            as_of=AS_OF,
            nodes=NODES,
            pods=PODS,
            calls=_CALLS,
            watches=1000 * _CALLS * watch(),
        ).splitlines()
    )
    yield from (
        "",
        "## One cluster",
        "",
        "| Dollars a month | Kubeconfig in a parameter of SSM | In Secrets Manager |",
        "|---|---|---|",
    )
    parameter, secret = per_cluster(steps[-1]), per_cluster(steps[-2])
    yield from (
        f"| {part} | {dollars:.3f} | {secret[part]:.3f} |" for part, dollars in parameter.items()
    )
    yield from ("", "## The deployment", "", "| Part | Dollars a month |", "|---|---|")
    yield from (
        f"| {part} | {dollars:.3f} |" for part, dollars in per_deployment(steps[-2]).items()
    )
    yield from ("", "## Alarms and dashboard", "", *_ON_REQUEST.splitlines(), "")
    yield from ("| Part | Dollars a month |", "|---|---|")
    yield from (f"| {part} | {dollars:.2f} |" for part, dollars in on_request().items())
    yield from (
        "",
        *_NOTIFIED.format(
            reads=notified.reads - counts.reads, dollars=of_notifications(counts, notified)
        ).splitlines(),
    )
    yield from ("", "## Counted requests", "", "| In a minute | |", "|---|---|")
    yield from (f"| {words} | {value} |" for words, value in _counted(counts))
    plain, packed = counts.lists * PASSES / 1e9, counts.packed * PASSES / 1e9
    yield from (
        "",
        *_EGRESS.format(
            plain=plain,
            packed=packed,
            plain_cost=plain * LIST.egress,
            packed_cost=packed * LIST.egress,
            changes=(changes := 0.1 * plain + 0.9 * _CHANGES * PASSES / 1e9),
            changes_cost=changes * LIST.egress,
            warm=(warm := 0.1 * packed + 0.9 * _CHANGES * PASSES / 1e9),
            warm_cost=warm * LIST.egress,
            kilobytes=_CHANGES / 1e3,
            each=counts.lists / 1e6,
            ratio=counts.lists / counts.packed,
        ).splitlines(),
    )


def _counted(counts: Counts) -> Iterator[tuple[str, str]]:
    yield (
        "calls of functions",
        ", ".join(f"{name} {each}" for name, each in sorted(counts.calls.items())),
    )
    rows = ", ".join(f"{units:g} for `{row}`" for row, units in counts.read.items())
    yield (
        "units read from the tables",
        f"{counts.reads:g}: {rows}; {counts.tick_reads:g} of them by any tick",
    )
    rows = ", ".join(f"{units} for `{row}`" for row, units in counts.written.items())
    seldom = ", ".join(f"`{row}`" for row, units in sorted(SELDOM.items()) if units)
    yield "units written", f"{counts.writes:g}: {rows}, and less than one a minute for {seldom}"
    yield "messages sent", str(counts.sent)
    yield (
        "bytes logged, Lambda's own lines aside",
        f"{counts.log}, {counts.tick_log} of them by any tick",
    )
    yield "series in CloudWatch", str(counts.series)
    yield "reads of secrets, in ten minutes", str(counts.secret_reads)


_HEAD = """\
# Cost

A quiet cluster of {nodes} nodes and {pods:,} pods with a pass every 60 s costs ${parameter:.2f} a month with its
kubeconfig in a parameter of SSM, ${secret:.2f} with it in Secrets Manager. A deployment costs ${deployment:.2f} in
addition. Tests hold these figures to at most ${limit_parameter:.2f}, ${limit_secret:.2f} and ${limit_deployment:.2f}.
What the machines of a cluster cost: [the bill](bill.md).

- Prices: us-east-1, {as_of}, without free tiers.
- `python -m infra.aws.cost` makes this page and counts on the emulation. It assumes that a pass
  takes 1.0 s with 512 MB on arm64, which was not measured on Lambda.
- Not included: [alarms and a dashboard](#alarms-and-dashboard), [traffic](#traffic-of-the-clusters-cloud),
  your own KMS keys, and operations: 1 call for a scale-up, about {calls} for an empty node, and the
  messages that [look after](architecture.md#operations) them ({watches:.2f} dollars for 1,000 empty
  nodes). Each series of `summary` is $0.30 a month while it is not zero.
- Twice as many passes cost twice as much, except for secrets and series. A second vendor costs its
  secret, a write unit in each pass, and its queue."""

_ON_REQUEST = """\
Per deployment, only on request. Prometheus and Grafana with `GET /metrics` cost requests only."""

_NOTIFIED = """\
## Notifications

[Notifications](notifications.md) of a quiet cluster read {reads:.1f} units more in a minute:
{dollars:.2f} dollars a month. SNS charges for messages."""

_EGRESS = """\
## Traffic of the cluster's cloud

The cluster's cloud charges about $0.09 for a GB of outgoing traffic. Each pass reads {each:.1f} MB of
lists.

| Lists, a month | GB | Dollars |
|---|---|---|
| plain | {plain:.0f} | {plain_cost:.2f} |
| compressed | {packed:.0f} | {packed_cost:.2f} |
| plain, and [changes](performance.md#warm-passes) in nine passes of ten | {changes:.0f} | {changes_cost:.2f} |
| compressed, and changes in nine passes of ten | {warm:.1f} | {warm_cost:.2f} |

The emulated pods compress {ratio:.0f} times; expect about 8 times. A pass that reads changes reads
{kilobytes:.0f} KB where one pod in a thousand has changed."""


def main() -> int:
    """Print the page."""
    for handler in logger.handlers:  # keeps the functions' log lines out of the page
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)
    sys.stdout.write(page(count(), count(notified=True)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
