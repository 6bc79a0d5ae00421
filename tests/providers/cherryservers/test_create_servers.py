"""Parallel orders: each is sent once, within the shared rate limit, and none after a
refusal that would affect all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.cherryservers.api import THREADS
from chalicelib.providers.cherryservers.decoding import CherryServer
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    OutOfStock,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.kit.services import RateLimit
from infra.emulators.cherryservers.attached_account import SECRET_NAME
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, Incoming, scripted
from tests.cases import each_row
from tests.providers.cherryservers.emulated import (
    PROJECT,
    SERVERS,
    EmulatedCloud,
    order,
    refusal,
)
from tests.providers.emulated import RecordedLimits, RotatedSecrets


def answering(answer: Callable[[Incoming], Answer]) -> EmulatedCloud:
    """Returns a project that answers orders in this way."""
    cloud = EmulatedCloud()
    cloud.server.reply("POST", answer, always=True)
    return cloud


def names(answers: tuple[object, ...]) -> list[str]:
    return [
        each.hostname if isinstance(each, CherryServer) else type(each).__name__ for each in answers
    ]


def made(request: Incoming) -> Answer:
    return scripted(
        201,
        {**json.loads(request.body), "id": 1000, "status": "deploying", "plan": {}, "region": {}},
    )


def test_cherry_orders_are_sent_in_parallel_and_answered_in_order() -> None:
    """The vendor answers the first order only when another has arrived."""
    free = threading.Event()

    def answer(request: Incoming) -> Answer:
        first = json.loads(request.body)["hostname"].endswith("0")
        if not first:
            free.set()
        else:
            assert free.wait(600.0)
        return made(request)

    bodies = [order(number) for number in range(6)]
    cloud = answering(answer)
    answers = cloud.api().create(bodies)
    assert names(answers) == [body.hostname for body in bodies]
    assert {request.path for request in cloud.server.requests} == {SERVERS}
    assert sorted(request.body for request in cloud.server.requests) == sorted(
        body.body() for body in bodies
    )


def test_cherry_order_takes_its_rate_limit_slot_only_with_a_free_connection() -> None:
    """Slots reserved while all connections are busy would release orders faster than four per
    second. Here no order is answered before one order per connection has arrived."""
    full, arrived = threading.Event(), list[str]()

    class Watch(RecordedLimits):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def take(self, pace: RateLimit, calls: int) -> float:
            self.seen.append(len(arrived))
            return super().take(pace, calls)

    def answer(request: Incoming) -> Answer:
        arrived.append(request.path)
        if len(arrived) == THREADS:
            full.set()
        assert full.wait(600.0)
        return made(request)

    watch = Watch()
    cloud = answering(answer)
    cloud._pacer = watch  # type: ignore[assignment]
    cloud.api().create([order(number) for number in range(THREADS + 2)])
    assert watch.seen[THREADS] == THREADS


def test_cherry_failed_order_stops_no_other() -> None:
    def answer(request: Incoming) -> Answer:
        return {
            "1": refusal(400, "Plan is out of stock"),
            "2": NO_ANSWER,
            "3": scripted(201, b'{"id"', cut=2),
            "4": scripted(201, {}),
            "5": refusal(400, "Bad hostname"),
        }.get(json.loads(request.body)["hostname"][-1], made(request))

    cloud = answering(answer)
    answers = cloud.api().create([order(number) for number in range(7)])
    assert [type(each) for each in answers] == [
        CherryServer,
        OutOfStock,
        Transient,
        Transient,
        Transient,
        InvalidRequest,
        CherryServer,
    ]
    assert len(cloud.server.requests) == 7


@each_row(("status", "error"), [(401, Unauthorized), (403, Unauthorized), (429, Throttled)])
def test_cherry_orders_stop_once_the_vendor_refuses_the_credentials(
    status: int, error: type[Exception]
) -> None:
    cloud = answering(lambda _: refusal(status))
    answers = cloud.api().create([order(number) for number in range(12)])
    assert len(answers) == 12
    assert 1 <= len(cloud.server.requests) <= THREADS
    assert sum(isinstance(each, error) for each in answers) == len(cloud.server.requests)
    assert answers[THREADS:] == (None,) * 8


def test_cherry_token_replaced_during_orders_is_read_again_for_all() -> None:
    """Four orders find the old token refused at the same time; one of them reads the secret
    again."""
    full, old = threading.Event(), list[str]()

    def answer(request: Incoming) -> Answer:
        if request.headers["authorization"] != "Bearer OLD-EXAMPLE":
            return made(request)
        old.append(request.path)
        if len(old) == THREADS:
            full.set()
        assert full.wait(600.0)
        return refusal(401)

    bodies = [order(number) for number in range(THREADS + 2)]
    cloud = answering(answer)
    secrets = RotatedSecrets(**{SECRET_NAME: "OLD-EXAMPLE"})
    secrets.now[SECRET_NAME] = cloud.token
    answers = cloud.api(secrets).create(bodies)
    assert names(answers) == [body.hostname for body in bodies]
    assert (secrets.fresh_reads, len(old)) == (1, THREADS)


def test_cherry_orders_wait_for_the_rate_limit_and_report_a_long_wait() -> None:
    limits = RecordedLimits([0.0, 0.25, 0.0, 99.0, 99.0])
    cloud = answering(made)
    cloud._pacer = limits  # type: ignore[assignment]
    first, second, refused, last = cloud.api().create([order(number) for number in range(4)])
    assert names((first, second)) == [order(0).hostname, order(1).hostname]
    assert isinstance(refused, Throttled)
    assert (refused.code, last, cloud.slept()) == ("OwnPace", None, 0.25)
    assert limits.pauses == [], "our own pace is no pause that the vendor asked for"
    assert len(cloud.server.requests) == 2


def test_cherry_orders_in_flight_are_answered_before_an_error_ends_the_purchase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If an error was raised while the vendor still answers, a server would be bought and its
    answer lost. The vendor answers only when the purchase waits for a thread."""
    arrived, free = threading.Semaphore(0), threading.Event()
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.startswith("cherryservers"):
            free.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)

    class Broken(RecordedLimits):
        def take(self, pace: RateLimit, calls: int) -> float:
            if len(self.granted) < THREADS - 1:
                return super().take(pace, calls)
            for _ in self.granted:
                arrived.acquire()
            raise ZeroDivisionError("an error that is none of the provider's")

    def answer(request: Incoming) -> Answer:
        arrived.release()
        assert free.wait(600.0)
        return made(request)

    cloud = answering(answer)
    cloud._pacer = Broken()  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        cloud.api().create([order(number) for number in range(THREADS)])
    sending = [
        thread.name for thread in threading.enumerate() if thread.name.startswith("cherryservers")
    ]
    free.set()
    assert sending == []
    assert len(cloud.server.requests) == THREADS - 1


def test_cherry_orders_without_a_token_send_nothing() -> None:
    def unreadable(_: str) -> str:
        raise OutscalerError("the secret cannot be read now")

    cloud = EmulatedCloud()
    for secrets, error in ((unreadable, Transient), (lambda _: " ", Unauthorized)):
        api = cloud.api(secrets)
        answers = api.create([order(0), order(1)])
        assert (type(answers[0]), answers[1]) == (error, None)
        with pytest.raises(error):
            api.servers()
    assert cloud.server.requests == []


def test_cherry_empty_order_list_makes_no_call() -> None:
    cloud = EmulatedCloud()
    assert cloud.api().create([]) == ()
    assert cloud.api().project == PROJECT
    assert cloud.requests == []
