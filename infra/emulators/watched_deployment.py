"""The deployment's alarms over an emulated world: what its functions, logs and queues show to CloudWatch.

Names of the emulation have no prefix, so the alarms are made for the plain names. Metrics that the emulation cannot
know (durations, throttled calls, errors of DynamoDB and API Gateway) are put by tests.
"""

from __future__ import annotations

import json
import logging
from types import TracebackType
from typing import Self

from chalicelib.runtime.log import logger
from infra.aws.alarm_resources import Names, alarm_resources, filters
from infra.aws.alarms import DEAD_LETTERS, FUNCTIONS, LAMBDA, SQS
from infra.aws.resources import QUEUES, dead_letters
from infra.emulators.cloudwatch_alarms import CloudWatchAlarms, Datapoints, matcher, metric_value
from infra.emulators.local_world import LocalWorld

NAMES = Names(
    function=str,
    log_group=str,
    queue=str,
    dead_letters=dead_letters,
    table="state",
    api=("outscaler", "api"),
    namespace="Outscaler/emulation",
    concurrency=1000,
)
MINUTE = 60.0
_VISIBLE = "ApproximateNumberOfMessagesVisible"


class WatchedDeployment:
    """A world whose alarms are evaluated once a minute. A context manager: it reads the log while it is entered."""

    def __init__(self, world: LocalWorld) -> None:
        self.world, self.datapoints = world, Datapoints()
        self.alarms = CloudWatchAlarms(alarm_resources("topic", NAMES), self.datapoints)
        self._seen = len(world.invocations)
        self._filters = [(properties, matcher(properties["FilterPattern"])) for _, properties in filters(NAMES)]
        self._handler = _Lines(self)
        self._handler.setFormatter(logger.registered_formatter)

    def __enter__(self) -> Self:
        logging.getLogger(logger.name).addHandler(self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger(logger.name).removeHandler(self._handler)

    def minutes(self, count: int) -> None:
        """Let the world run and evaluate the alarms after each minute."""
        for _ in range(count):
            self.world.step(MINUTE)
            self._measure()
            self.alarms.look(self.world.clock())

    def raised(self) -> set[str]:
        """Return the logical ids of the alarms that are in the state ALARM."""
        return {name for name, state in self.alarms.states.items() if state == "ALARM"}

    def line(self, function: str, text: str) -> None:
        """Apply the metric filters of a function's log to one of its lines."""
        found = json.loads(text)
        for properties, matches in self._filters:
            if properties["LogGroupName"] != function or not matches(found):
                continue
            for each in properties["MetricTransformations"]:
                value = metric_value(each["MetricValue"], found)
                if value is not None:
                    self.datapoints.put(each["MetricNamespace"], each["MetricName"], value, self.world.clock())

    def _measure(self) -> None:
        for made in self.world.invocations[self._seen :]:
            if made.function in FUNCTIONS:
                for metric, value in (("Invocations", 1.0), ("Errors", float(not made.finished)), ("Throttles", 0.0)):
                    self.datapoints.put(LAMBDA, metric, value, made.at, FunctionName=made.function)
        self._seen = len(self.world.invocations)
        now = self.world.clock() - 1.0  # in the minute that ends now
        queues = self.world.queues
        for name in QUEUES:
            waiting = queues.waiting(name)
            age = max((now - message.sent_at for message in waiting), default=0.0)
            visible = sum(message.visible_at <= now for message in waiting)
            self.datapoints.put(SQS, "ApproximateAgeOfOldestMessage", max(0.0, age), now, QueueName=name)
            self.datapoints.put(SQS, _VISIBLE, float(visible), now, QueueName=name)
        for name in DEAD_LETTERS:
            count = float(len(queues.dead.get(name, ())))
            self.datapoints.put(SQS, _VISIBLE, count, now, QueueName=dead_letters(name))


class _Lines(logging.Handler):
    """Passes on each line of the log with the function that is running."""

    def __init__(self, watched: WatchedDeployment) -> None:
        super().__init__()
        self._watched = watched

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        function = self._watched.world.invoker.current
        if function:
            self._watched.line(function, self.format(record))
