"""Emulates EventBridge and the queues' event sources on moto's SQS, because
moto triggers no functions.

    schedule   a virtual minute has passed ─► the function
    queue      received ─► delayed until it is due ─► the function ─┬─ returned ─► deleted
                                                                    └─ failed or crashed ─► visible
                                                                    again after
                                                                       the queue's timeout; too
                                                                       often ─► dead letters
    invoked    an asynchronous invocation, stored in Lambda's queue for it; the
               event is the message itself

SQS counts wall-clock seconds, the emulation counts virtual ones. Therefore the queues have a very
long visibility timeout, and the delays and visibility timeouts of the deployment are applied here
with the emulation's clock. SQS counts receives and moves messages to the dead letters.
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from infra.emulators.aws import Queue
from infra.emulators.controllers.clock import Clock
from infra.emulators.deployed_functions import DeployedFunction
from infra.emulators.lambda_events import Json, schedule_event, sqs_event, sqs_record
from infra.emulators.live.lambda_processes import Ended, Result, Worker, logged
from infra.emulators.live.lambda_worker import VirtualDelays

MINUTE = 60.0
KEPT = 12 * 3600
"""SQS's longest visibility timeout, in wall seconds."""
_POLL = 1  # wall seconds of a long poll; also the maximum duration of a stop

_log = logging.getLogger(__name__)

Invoke = Callable[[str, Json], Result]


class Schedule(Worker):
    """Invokes a function every virtual minute, the first time at once. A slow invocation delays the
    next one, as a reserved concurrency of one does; missed ones are not made up for."""

    def __init__(
        self,
        function: DeployedFunction,
        clock: Clock,
        invoke: Invoke,
        stopping: threading.Event,
        ended: Ended = logged,
    ) -> None:
        super().__init__(self._tick, name=f"schedule-{function.name}", ended=ended)
        self._function, self._clock, self._invoke, self._stopping = (
            function,
            clock,
            invoke,
            stopping,
        )

    def _tick(self) -> None:
        due = self._clock()
        for number in itertools.count():
            self._clock.sleep(due - self._clock(), self._stopping.wait)
            if self._stopping.is_set():
                return
            try:
                self._invoke(
                    self._function.name, schedule_event(self._function.name, self._clock(), number)
                )
            except RuntimeError as error:
                if not self._stopping.is_set():
                    raise  # the function cannot be started
                _log.info("%s: %s", self._function.name, error)
            due = max(due + MINUTE, self._clock())


class QueueSource:
    """The event source of one queue: a thread that receives and a thread that invokes."""

    def __init__(
        self,
        function: DeployedFunction,
        queue: Queue,
        url: str,
        sqs: Any,
        clock: Clock,
        invoke: Invoke,
        stopping: threading.Event,
        ended: Ended = logged,
    ) -> None:
        self._function, self._queue, self._url, self._sqs = function, queue, url, sqs
        self._clock, self._invoke, self._stopping = clock, invoke, stopping
        self._held: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._threads = [
            Worker(work, name=f"{work.__name__.strip('_')}-{function.name}", ended=ended)
            for work in (self._receive, self._play)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _receive(self) -> None:
        while not self._stopping.is_set():
            answer = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=_POLL,
                AttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            for message in answer.get("Messages", ()):
                due = (
                    message.get("MessageAttributes", {})
                    .get(VirtualDelays.DUE, {})
                    .get("StringValue")
                )
                again = int(message["Attributes"]["ApproximateReceiveCount"]) > 1
                self._hold(
                    0.0 if again or due is None else float(due), partial(self._deliver, message)
                )

    def _hold(self, due: float, what: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._held, (due, next(self._order), what))
            self._changed.notify_all()

    def _play(self) -> None:
        while (what := self._next()) is not None:
            try:
                what()
            except RuntimeError as error:
                if not self._stopping.is_set():
                    raise  # the function cannot be started
                _log.info("%s: %s", self._function.name, error)

    def _next(self) -> Callable[[], None] | None:
        """Return the next message when it is due, None when the emulation stops."""
        with self._changed:
            while not self._stopping.is_set():
                left = self._held[0][0] - self._clock() if self._held else None
                if left is not None and left <= 0.0:
                    return heapq.heappop(self._held)[2]
                self._changed.wait(None if left is None else self._clock.wall_seconds(left))
        return None

    def _deliver(self, message: Mapping[str, Any]) -> None:
        event = (
            json.loads(message["Body"])
            if self._function.invoked
            else sqs_event(self._record(message))
        )
        made = self._invoke(self._function.name, event)
        if made.finished and message["MessageId"] not in made.failed_messages:
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            return
        self._hold(made.began + self._queue.visibility, partial(self._release, message))

    def _release(self, message: Mapping[str, Any]) -> None:
        """Make a message visible again. The next receive increments its count and moves it to the
        dead letters if the limit is exceeded."""
        self._sqs.change_message_visibility(
            QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )

    def _record(self, message: Mapping[str, Any]) -> Json:
        return sqs_record(
            self._function.queue,
            message["MessageId"],
            message["ReceiptHandle"],
            message["Body"],
            message["Attributes"],
        )
