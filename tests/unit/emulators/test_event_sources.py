"""The live event sources: moto's SQS stores the messages, the emulation's clock delivers them."""

from __future__ import annotations

import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.emulators.aws import LocalAws, Queue
from infra.emulators.controllers.clock import Clock
from infra.emulators.deployed_functions import DeployedFunction
from infra.emulators.events import KEPT, QueueSource, Schedule
from infra.emulators.lambda_events import Json
from infra.emulators.live.lambda_processes import Result
from infra.emulators.live.lambda_worker import Counts, VirtualDelays
from tests.processes import PATIENCE, started

SPEED = 200.0  # a virtual minute is 0.3 s
STANDING = 0.001
"""The speed of a clock within `working`, where a busy machine takes no virtual time."""


class EventSourcesFixture:
    """One queue and its source; answers: what the function does, in order, then only success."""

    def __init__(self, aws: LocalAws) -> None:
        self.clock = Clock(1000.0, SPEED, time.monotonic, at_work=STANDING)
        self.sqs = aws.client("sqs")
        name = f"queue-{uuid.uuid4().hex[:8]}"
        self.url = aws.create_queues({name: Queue(KEPT, 2)})[name]
        self.sender = VirtualDelays(self.sqs, self.clock, Counts())
        self.answers: list[Callable[[Json], Result]] = []
        self.calls: queue.SimpleQueue[tuple[float, Json]] = queue.SimpleQueue()
        self.stopping = threading.Event()
        self.source = QueueSource(
            DeployedFunction("f", "m.f", name),
            Queue(60, 2),
            self.url,
            self.sqs,
            self.clock,
            self._invoke,
            self.stopping,
        )

    def _invoke(self, name: str, event: Json) -> Result:
        now = self.clock()
        result = self.answers.pop(0)(event) if self.answers else Result(name, now, now)
        self.calls.put((now, event))
        return result

    def fails(self, event: Json) -> Result:
        """The function returns its messages as failed."""
        back = [{"itemIdentifier": record["messageId"]} for record in event["Records"]]
        return Result("f", self.clock(), self.clock(), {"batchItemFailures": back})

    def dies(self, _event: Json) -> Result:
        """The function's process dies."""
        return Result("f", self.clock(), self.clock(), killed=True)

    def send(self, body: str, delay: int = 0) -> float:
        """Sends a message; returns the time of sending."""
        now = self.clock()
        self.sender.send_message(QueueUrl=self.url, MessageBody=body, DelaySeconds=delay)
        return now

    def next_call(self) -> tuple[float, Json]:
        """Returns (time, record) of the next invocation."""
        at, event = self.calls.get(timeout=PATIENCE)
        return at, event["Records"][0]

    def left(self, url: str) -> int:
        """Returns the number of messages waiting or in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
        return sum(map(int, answer["Attributes"].values()))


@pytest.fixture
def bench(aws: LocalAws) -> Iterator[EventSourcesFixture]:
    made = EventSourcesFixture(aws)
    made.source.start()
    yield made
    made.stopping.set()
    made.source.join()


def test_event_source_delayed_message_arrives_when_due_and_others_overtake(
    bench: EventSourcesFixture,
) -> None:
    with bench.clock.working():
        sent = bench.send("later", delay=100)
        bench.send("now")
        first = bench.next_call()
    second = bench.next_call()
    assert (first[1]["body"], second[1]["body"]) == ("now", "later")
    assert second[0] >= sent + 100


@pytest.mark.parametrize("way", ["fails", "dies"])
def test_event_source_failed_message_returns_after_the_visibility_timeout(
    bench: EventSourcesFixture, way: str
) -> None:
    bench.answers = [getattr(bench, way)]
    bench.send("x")
    first, second = bench.next_call(), bench.next_call()
    assert second[0] - first[0] >= 60
    assert [call[1]["attributes"]["ApproximateReceiveCount"] for call in (first, second)] == [
        "1",
        "2",
    ]


def test_event_source_message_failing_too_often_goes_to_the_dead_letter_queue(
    bench: EventSourcesFixture,
) -> None:
    bench.answers = [bench.dies, bench.dies]
    bench.send("x")
    bench.next_call()
    bench.next_call()
    until = time.monotonic() + PATIENCE
    while not bench.left(f"{bench.url}-dead") and time.monotonic() < until:
        bench.stopping.wait(0.05)
    assert (bench.left(f"{bench.url}-dead"), bench.left(bench.url), bench.calls.empty()) == (
        1,
        0,
        True,
    )


def test_event_source_schedule_fires_every_virtual_minute() -> None:
    clock, stopping = Clock(1000.0, SPEED, time.monotonic, at_work=STANDING), threading.Event()
    calls: queue.SimpleQueue[float] = queue.SimpleQueue()

    def invoke(name: str, _event: Json) -> Result:
        calls.put(clock())
        return Result(name, clock(), clock())

    schedule = Schedule(
        DeployedFunction("tick", "m.tick", schedule="rate(1 minute)"), clock, invoke, stopping
    )
    with clock.working():
        began = clock()
        schedule.start()
        seen = [calls.get(timeout=PATIENCE)]
    seen += [calls.get(timeout=PATIENCE) for _ in range(2)]
    stopping.set()
    schedule.join()
    assert seen[0] < began + 60
    assert [at >= began + number * 60 for number, at in enumerate(seen)] == [True] * 3


def test_event_source_clock_continues_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    clock = Clock(5000.0, 20.0, at_work=2.0, path=path)
    read = "import sys, pathlib; from infra.emulators.controllers.clock import Clock"
    program = (
        f"{read}; clock = Clock.shared(pathlib.Path(sys.argv[1])); input(); print(clock.now(), "
        "clock.speed)"
    )
    command = [sys.executable, "-c", program, str(path)]
    with started(command) as child, clock.working():
        before = clock()
        answer, _ = child.communicate("\n", timeout=PATIENCE)
        after = clock()
    now, speed = (float(word) for word in answer.split())
    assert before <= now <= after
    assert speed == 20.0
