"""Runs one function in its own process, as Lambda does: called by its handler's name,
with its environment only.

`python -m infra.emulators.live.lambda_worker FUNCTION HANDLER` reads a line of JSON per invocation
from standard input ({"event": …, "die_at": [checkpoints]}) and answers each with a line. Output of
the function itself goes to the log file. A process that must crash at a checkpoint exits there at
once, without cleanup and without a response.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from infra.emulators.aws import client
from infra.emulators.controllers.clock import Clock
from infra.emulators.deployed_functions import AsyncLambda, invocations, queues, timeouts
from infra.emulators.lambda_events import LambdaContext

_WRITES = {"PutItem": 1, "UpdateItem": 1, "DeleteItem": 1}


class Counts:
    """Counts of one process; cleared for each invocation."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def clear(self) -> None:
        self._counts = {}

    def add(self, what: str, number: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + number

    def taken(self) -> dict[str, int]:
        """Return `requests` to AWS, items in `writes` (attempted), messages in `sent:<queue>`."""
        return dict(self._counts)

    def listen_to(self, client: Any) -> None:
        client.meta.events.register("before-parameter-build.dynamodb", self._dynamodb)

    def _dynamodb(self, model: Any, params: dict[str, Any], **_: object) -> None:
        self.add("requests")
        items = [
            action for action in params.get("TransactItems", ()) if "ConditionCheck" not in action
        ]
        self.add("writes", _WRITES.get(model.name, 0) + len(items))


class VirtualDelays:
    """An SQS client for SqsSender: it sends at once and records in an attribute
    when the message is due.

    SQS counts wall-clock seconds, and a message that is due in 20 virtual seconds may be due in one
    of them. The event source (infra/emulators/events.py) delays early messages.
    """

    DUE = "due"

    def __init__(self, client: Any, clock: Callable[[], float], counts: Counts) -> None:
        self._client, self._clock, self._counts = client, clock, counts

    def send_message(self, *, QueueUrl: str, MessageBody: str, DelaySeconds: int) -> Any:  # noqa: N803 - API's words
        """Send like SQS, with the delay in virtual seconds."""
        self._counts.add("requests")
        self._counts.add(f"sent:{QueueUrl.rpartition('/')[2]}")
        due = {"DataType": "Number", "StringValue": repr(self._clock() + DelaySeconds)}
        return self._client.send_message(
            QueueUrl=QueueUrl, MessageBody=MessageBody, MessageAttributes={self.DUE: due}
        )


CLOCK = "OUTSCALER_LOCAL_CLOCK"  # the file of Clock.shared
LOG = "OUTSCALER_LOCAL_LOG"
# and a function: the URL of the queue for its asynchronous invocations
EVENTS = "OUTSCALER_LOCAL_EVENTS_"
DEATH = 137


class Checkpoints:
    """places: where this process must crash, set for each invocation;
    `2*grow:called`: at the second visit."""

    def __init__(self) -> None:
        self.places: frozenset[str] = frozenset()
        self._visits = Counter[str]()

    def __call__(self, place: str) -> None:
        self._visits[place] += 1
        if self.places & {place, f"{self._visits[place]}*{place}"}:
            os._exit(DEATH)


def main(function: str, handler: str) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    checkpoints, counts = Checkpoints(), Counts()
    clock = Clock.shared(Path(os.environ[CLOCK]))
    lasts = timeouts().get(function, 60) * clock.speed  # Lambda counts wall-clock seconds
    entered = _entered(handler, checkpoints, counts, clock)
    _answer(answers, {"ready": function})
    for number, line in enumerate(sys.stdin, 1):
        asked = json.loads(line)
        checkpoints.places = frozenset(asked.get("die_at", ()))
        counts.clear()
        context = LambdaContext(
            function, f"{function}-{os.getpid()}-{number}", clock, clock() + lasts
        )
        made: dict[str, Any]
        try:
            made = {"answer": entered(asked["event"], context)}
        except Exception as error:
            print(
                json.dumps(
                    {"level": "ERROR", "function": function, "message": traceback.format_exc()}
                ),
                flush=True,
            )
            made = {"error": f"{type(error).__name__}: {error}"}
        _answer(answers, {**made, "counts": counts.taken()})
    return 0


def _entered(
    handler: str, checkpoints: Checkpoints, counts: Counts, clock: Clock
) -> Callable[[Any, Any], Any]:
    """Return the handler, after installing a runtime from the environment with the shared clock.
    The order matters: the handler's module requests the runtime while it is imported."""
    from chalicelib.passes.lease_renewal import in_thread
    from chalicelib.runtime.runtime import from_environment, install
    from chalicelib.runtime.senders import RECONCILE_LARGE, LargeFunction, SqsSender

    made = from_environment(os.environ, clock)
    urls = {
        name: url for name in queues() if (url := os.environ.get(f"OUTSCALER_QUEUE_{name.upper()}"))
    }
    sqs: Any = VirtualDelays(client("sqs", os.environ["AWS_ENDPOINT_URL"]), clock, counts)
    counts.listen_to(made.store.table.client)
    large = LargeFunction(
        RECONCILE_LARGE, _lambda(client("sqs", os.environ["AWS_ENDPOINT_URL"]), counts)
    )
    sender = SqsSender(urls, sqs)
    install(
        dataclasses.replace(
            made,
            sender=sender,
            checkpoint=checkpoints,
            hand_over=large,
            sleep=clock.sleep,
            repeat=partial(in_thread, wait=partial(_wait, clock)),
        )
    )
    module, _, attribute = handler.rpartition(".")
    entered: Callable[[Any, Any], Any] = getattr(importlib.import_module(module), attribute)
    return entered


def _wait(clock: Clock, event: threading.Event, seconds: float) -> bool:
    """Wait for the event, at most so many virtual seconds; return whether it is set."""
    clock.sleep(seconds, event.wait)
    return event.is_set()


def _lambda(sqs: Any, counts: Counts) -> AsyncLambda:
    """Return a Lambda client for asynchronous invocations, which the emulation reads from queues
    (infra/emulators/events.py)."""
    urls = {
        name: url for name in invocations() if (url := os.environ.get(f"{EVENTS}{name.upper()}"))
    }

    def keep(function: str, event: bytes) -> None:
        counts.add("requests")
        counts.add(f"invoked:{function}")
        sqs.send_message(QueueUrl=urls[function], MessageBody=event.decode())

    return AsyncLambda(frozenset(urls), keep)


def _answer(answers: TextIO, made: dict[str, Any]) -> None:
    answers.write(json.dumps(made) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
