"""The alarms of a deployment: a fixed set that watches the machinery, not single clusters.

CloudWatch cannot compare a gauge with the present time, a stack does not know its clusters, and an
alarm for each of them would cost money. The number of alarms is therefore fixed.

A function whose messages fail returns normally and reports them to its queue, so Lambda counts no
error. Such failures are counted in the log, by metric filters. Both kinds of deployment use these
tables, and the emulation evaluates the same properties (infra/emulators/cloudwatch_alarms.py).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from chalicelib.runtime.messages import PROVIDERS, RECONCILE
from chalicelib.runtime.senders import RECONCILE_LARGE
from infra.aws.resources import QUEUES

RUNBOOK = "docs/runbook.md"
ACT = tuple(f"act_{provider}" for provider in PROVIDERS)
PASSES = (RECONCILE, RECONCILE_LARGE)
FUNCTIONS = ("api_handler", "tick", *PASSES, *ACT)
DEAD_LETTERS = ("tick", *QUEUES)
"""Queues that have a dead-letter queue, by their internal names; the tick's are undelivered
events."""

_MINUTE, FIVE_MINUTES = 60, 300  # seconds
LAMBDA, SQS = "AWS/Lambda", "AWS/SQS"
LOGGED = "logged"
"""Stands for the namespace of the metrics that the metric filters make."""
_VISIBLE = "ApproximateNumberOfMessagesVisible"
_STORE_CALLS = ("GetItem", "Query", "UpdateItem", "TransactWriteItems")


class Source(msgspec.Struct, frozen=True):
    """One metric. of: what the dimensions name, see Names; "" for a metric without dimensions.
    more: further dimensions. provider: the metric is left out where this provider is not used."""

    id: str
    namespace: str
    metric: str
    stat: str
    of: str = ""
    more: tuple[tuple[str, str], ...] = ()
    provider: str = ""


class MachineryAlarm(msgspec.Struct, frozen=True):
    """One alarm: `breaching` of `periods` values of `period` seconds compare with the threshold.

    expression: of the sources' ids, in CloudWatch's metric math; "" for the only source.
    summary: its description.
    """

    name: str
    summary: str
    sources: tuple[Source, ...]
    threshold: float
    breaching: int
    periods: int
    expression: str = ""
    period: int = _MINUTE
    comparison: str = "GreaterThanThreshold"
    missing: str = "notBreaching"

    @property
    def anchor(self) -> str:
        """Return the heading of docs/runbook.md about this alarm."""
        return self.name.lower()


class LogFilter(msgspec.Struct, frozen=True):
    """Lines of the log that become a metric. functions: whose logs. value: a
    number, or a field of the line."""

    name: str
    metric: str
    functions: tuple[str, ...]
    pattern: str
    value: str = "1"


def _each(prefix: str, metric: str, functions: tuple[str, ...]) -> tuple[Source, ...]:
    return tuple(
        Source(
            f"{prefix}_{function}",
            LAMBDA,
            metric,
            "Sum",
            f"function:{function}",
            provider=function.removeprefix("act_") if function in ACT else "",
        )
        for function in functions
    )


def _logged(identifier: str, metric: str, stat: str = "Sum") -> Source:
    return Source(identifier, LOGGED, metric, stat)


FILTERS: tuple[LogFilter, ...] = (
    LogFilter("Passes", "Passes", PASSES, '{ $.message = "pass" }'),
    # so that the metric has a value in every minute, and an alarm needs no
    # assumption about missing ones
    LogFilter("NoPasses", "Passes", ("tick",), '{ $.message = "tick" }', "0"),
    LogFilter(
        "ExpectedPasses", "ExpectedPasses", ("tick",), '{ $.message = "tick" }', "$.expected"
    ),
    LogFilter("FailedPasses", "FailedPasses", (RECONCILE,), '{ $.message = "message failed*" }'),
    LogFilter("Brakes", "Brakes", PASSES, '{ ($.message = "pass") && ($.brake IS TRUE) }'),
    LogFilter("Steps", "Steps", ACT, '{ ($.message = "step") || ($.message = "operation ended") }'),
    LogFilter("FailedSteps", "FailedSteps", ACT, '{ $.message = "message failed*" }'),
    LogFilter(
        "FailedOperations",
        "FailedOperations",
        ACT,
        '{ ($.message = "operation ended") && ($.state = "failed") }',
    ),
)

PERMANENT = ("Passes", "ExpectedPasses")
"""Metrics of the log that have values all the time; the others have some only when
something fails or acts."""

ALARMS: tuple[MachineryAlarm, ...] = (
    MachineryAlarm(
        "TickMissing",
        "The tick does not run, so no cluster is looked at",
        (Source("ticks", LAMBDA, "Invocations", "Sum", "function:tick"),),
        threshold=1,
        breaching=4,
        periods=5,
        comparison="LessThanThreshold",
        missing="breaching",
    ),
    MachineryAlarm(
        "TickErrors",
        "The tick ends with an error",
        (Source("errors", LAMBDA, "Errors", "Sum", "function:tick"),),
        threshold=0,
        breaching=3,
        periods=5,
    ),
    MachineryAlarm(
        "PassesMissing",
        "Clusters are due, and no pass has succeeded for five minutes",
        (_logged("passes", "Passes"), _logged("expected", "ExpectedPasses", "Maximum")),
        expression="IF(expected > 0, IF(passes < 1, 1, 0), 0)",
        threshold=0,
        breaching=5,
        periods=5,
        missing="breaching",
    ),
    MachineryAlarm(
        "PassErrors",
        "More than a fifth of the passes fail",
        (
            *_each("errors", "Errors", PASSES),
            _logged("errors_logged", "FailedPasses"),
            *_each("calls", "Invocations", (RECONCILE,)),
        ),
        expression=(
            'IF(calls_reconcile >= 5, 100 * SUM(FILL(METRICS("errors"), 0)) / calls_reconcile, 0)'
        ),
        threshold=20,
        breaching=3,
        periods=5,
        period=FIVE_MINUTES,
    ),
    MachineryAlarm(
        "PassSlow",
        "Passes need more than 80 % of the time that a function has",
        tuple(
            Source(f"length_{name}", LAMBDA, "Duration", "p95", f"function:{name}")
            for name in PASSES
        ),
        expression='MAX(FILL(METRICS("length"), 0))',
        threshold=96_000,
        breaching=3,
        periods=3,
        period=FIVE_MINUTES,
    ),
    MachineryAlarm(
        "ActErrors",
        "More than a fifth of the steps of operations fail",
        (
            *_each("errors", "Errors", ACT),
            _logged("errors_logged", "FailedSteps"),
            _logged("steps", "Steps"),
        ),
        expression=(
            '100 * SUM(FILL(METRICS("errors"), 0)) / (SUM(FILL(METRICS("errors"), 0)) + '
            "FILL(steps, 0))"
        ),
        threshold=20,
        breaching=3,
        periods=5,
        period=FIVE_MINUTES,
    ),
    MachineryAlarm(
        "OperationsFailed",
        "Operations fail or run out of time",
        (_logged("failed", "FailedOperations"),),
        threshold=0,
        breaching=3,
        periods=3,
        period=FIVE_MINUTES,
    ),
    MachineryAlarm(
        "BrakeTripped",
        "The circuit breaker of a cluster stops its removals",
        (_logged("brakes", "Brakes"),),
        threshold=0,
        breaching=1,
        periods=1,
        period=FIVE_MINUTES,
    ),
    MachineryAlarm(
        "Throttled",
        "Lambda refuses to run functions",
        _each("throttles", "Throttles", FUNCTIONS),
        expression='SUM(FILL(METRICS("throttles"), 0))',
        threshold=0,
        breaching=3,
        periods=5,
    ),
    MachineryAlarm(
        "QueueOld",
        "Passes wait in their queue for more than five minutes",
        (
            Source("age", SQS, "ApproximateAgeOfOldestMessage", "Maximum", f"queue:{RECONCILE}"),
            Source("visible", SQS, _VISIBLE, "Minimum", f"queue:{RECONCILE}"),
        ),
        # a message that failed is older than that, and invisible until it is delivered again
        expression="IF(visible > 0, age, 0)",
        threshold=300,
        breaching=3,
        periods=5,
    ),
    MachineryAlarm(
        "TableRefuses",
        "DynamoDB throttles the state table or answers with errors",
        (
            *(
                Source(
                    f"refused_{one.lower()}", "AWS/DynamoDB", f"{one}ThrottleEvents", "Sum", "table"
                )
                for one in ("Read", "Write")
            ),
            *(
                Source(
                    f"refused_{one.lower()}",
                    "AWS/DynamoDB",
                    "SystemErrors",
                    "Sum",
                    "table",
                    (("Operation", one),),
                )
                for one in _STORE_CALLS
            ),
        ),
        expression='SUM(FILL(METRICS("refused"), 0))',
        threshold=0,
        breaching=5,
        periods=5,
    ),
    MachineryAlarm(
        "WebhookFails",
        "More than a twentieth of the requests to the API get an error of the server",
        (Source("failures", "AWS/ApiGateway", "5XXError", "Average", "api"),),
        threshold=0.05,
        breaching=3,
        periods=5,
    ),
    MachineryAlarm(
        "Concurrency",
        "The account's concurrent executions are nearly used up",
        (Source("claimed", LAMBDA, "ClaimedAccountConcurrency", "Maximum"),),
        expression="100 * claimed / {concurrency}",
        threshold=90,
        breaching=3,
        periods=5,
    ),
)


def metrics_charged(providers: Collection[str] = PROVIDERS) -> int:
    """Return how many metrics the alarms watch, each of which CloudWatch charges for.
    providers: those in use."""
    watched = [
        source
        for alarm in ALARMS
        for source in alarm.sources
        if source.provider in ("", *providers)
    ]
    return len(watched) + len(DEAD_LETTERS)
