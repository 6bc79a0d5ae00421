"""Parallel orders: each is sent once, within the shared rate limit, and none after a refusal that would affect all."""

from __future__ import annotations

import json
import threading

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.cherryservers.api import THREADS
from chalicelib.providers.cherryservers.decoding import CherryServer
from chalicelib.providers.errors import (
    InvalidRequest,
    OutOfStock,
    Throttled,
    Transient,
    Unauthorized,
)
from chalicelib.providers.services import RateLimit
from infra.emulators.scripted_http_server import fingerprint
from tests.cases import each_row
from tests.unit.providers.cherryservers.scripted_api import (
    PROJECT,
    SERVERS,
    TOKEN,
    Books,
    HttpScript,
    Reply,
    ScriptedApiClock,
    ScriptedApiSecrets,
    Seen,
    open_to,
    order,
    refusal,
)


def names(answers: tuple[object, ...]) -> list[str]:
    return [each.hostname if isinstance(each, CherryServer) else type(each).__name__ for each in answers]


def made(seen: Seen) -> Reply:
    return Reply(201, {**json.loads(seen.body), "id": 1000, "status": "deploying", "plan": {}, "region": {}})


def test_cherry_orders_are_sent_in_parallel_and_answered_in_order() -> None:
    """The vendor answers the first order only when another has arrived."""
    free = threading.Event()

    def answer(seen: Seen) -> Reply:
        first = json.loads(seen.body)["hostname"].endswith("0")
        if not first:
            free.set()
        return Reply(**{**made(seen).__dict__, "held": free if first else None})

    bodies = [order(number) for number in range(6)]
    with HttpScript(answer) as server:
        answers = open_to(server.url).create(bodies)
    assert names(answers) == [body.hostname for body in bodies]
    assert {seen.path for seen in server.requests} == {SERVERS}
    assert sorted(seen.body for seen in server.requests) == sorted(body.body() for body in bodies)


def test_cherry_order_takes_its_rate_limit_slot_only_with_a_free_connection() -> None:
    """Slots reserved while all connections are busy would release orders faster than four per second. Here no order is
    answered
    before one order per connection has arrived."""
    full, arrived = threading.Event(), list[str]()

    class Watch(Books):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def take(self, pace: RateLimit, calls: int) -> float:
            self.seen.append(len(arrived))
            return super().take(pace, calls)

    def answer(seen: Seen) -> Reply:
        arrived.append(seen.path)
        if len(arrived) == THREADS:
            full.set()
        return Reply(**{**made(seen).__dict__, "held": full})

    watch = Watch()
    with HttpScript(answer) as server:
        open_to(server.url, pacer=watch).create([order(number) for number in range(THREADS + 2)])
    assert watch.seen[THREADS] == THREADS


def test_cherry_failed_order_stops_no_other() -> None:
    def answer(seen: Seen) -> Reply:
        return {
            "1": refusal(400, "Plan is out of stock"),
            "2": Reply(hang_up=True),
            "3": Reply(201, b'{"id"', cut=2),
            "4": Reply(201, {}),
            "5": refusal(400, "Bad hostname"),
        }.get(json.loads(seen.body)["hostname"][-1], made(seen))

    with HttpScript(answer) as server:
        answers = open_to(server.url).create([order(number) for number in range(7)])
    assert [type(each) for each in answers] == [
        CherryServer,
        OutOfStock,
        Transient,
        Transient,
        Transient,
        InvalidRequest,
        CherryServer,
    ]
    assert len(server.requests) == 7


@each_row(("status", "error"), [(401, Unauthorized), (403, Unauthorized), (429, Throttled)])
def test_cherry_orders_stop_once_the_vendor_refuses_the_credentials(status: int, error: type[Exception]) -> None:
    with HttpScript(lambda _: refusal(status)) as server:
        answers = open_to(server.url).create([order(number) for number in range(12)])
    assert len(answers) == 12
    assert 1 <= len(server.requests) <= THREADS
    assert sum(isinstance(each, error) for each in answers) == len(server.requests)
    assert answers[THREADS:] == (None,) * 8


def test_cherry_token_replaced_during_orders_is_read_again_for_all() -> None:
    """Four orders find the old token refused at the same time; one of them reads the secret again."""
    secrets, full, old = ScriptedApiSecrets(token="OLD-EXAMPLE"), threading.Event(), list[str]()
    secrets.now["token"] = TOKEN

    def answer(seen: Seen) -> Reply:
        if seen.credential != fingerprint("Bearer OLD-EXAMPLE"):
            return made(seen)
        old.append(seen.path)
        if len(old) == THREADS:
            full.set()
        return Reply(**{**refusal(401).__dict__, "held": full})

    bodies = [order(number) for number in range(THREADS + 2)]
    with HttpScript(answer) as server:
        answers = open_to(server.url, read_secret=secrets).create(bodies)
    assert names(answers) == [body.hostname for body in bodies]
    assert (secrets.looks, len(old)) == (1, THREADS)


def test_cherry_orders_wait_for_the_rate_limit_and_report_a_long_wait() -> None:
    books, clock = Books([0.0, 0.25, 0.0, 99.0, 99.0]), ScriptedApiClock()
    with HttpScript(made) as server:
        first, second, refused, last = open_to(server.url, pacer=books, clock=clock).create(
            [order(number) for number in range(4)]
        )
    assert names((first, second)) == [order(0).hostname, order(1).hostname]
    assert isinstance(refused, Throttled)
    assert (refused.code, last, clock.slept) == ("OwnPace", None, 0.25)
    assert books.held == [], "our own pace is no pause that the vendor asked for"
    assert len(server.requests) == 2


def test_cherry_orders_in_flight_are_answered_before_an_error_ends_the_purchase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If an error was raised while the vendor still answers, a server would be bought and its answer lost. The vendor
    answers only when the purchase waits for a thread."""
    arrived, free = threading.Semaphore(0), threading.Event()
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.startswith("cherryservers"):
            free.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)

    class Broken(Books):
        def take(self, pace: RateLimit, calls: int) -> float:
            if len(self.taken) < THREADS - 1:
                return super().take(pace, calls)
            for _ in self.taken:
                arrived.acquire()
            raise ZeroDivisionError("an error that is none of the provider's")

    def answer(seen: Seen) -> Reply:
        arrived.release()
        return Reply(**{**made(seen).__dict__, "held": free})

    with HttpScript(answer) as server:
        with pytest.raises(ZeroDivisionError):
            open_to(server.url, pacer=Broken()).create([order(number) for number in range(THREADS)])
        sending = [thread.name for thread in threading.enumerate() if thread.name.startswith("cherryservers")]
        free.set()
        assert sending == []
    assert len(server.requests) == THREADS - 1


def test_cherry_orders_without_a_token_send_nothing() -> None:
    def unreadable(_: str) -> str:
        raise OutscalerError("the secret cannot be read now")

    with HttpScript() as server:
        for secrets, error in ((unreadable, Transient), (ScriptedApiSecrets(token=" "), Unauthorized)):
            api = open_to(server.url, read_secret=secrets)
            answers = api.create([order(0), order(1)])
            assert (type(answers[0]), answers[1]) == (error, None)
            with pytest.raises(error):
                api.servers()
    assert server.requests == []


def test_cherry_empty_order_list_makes_no_call() -> None:
    with HttpScript() as server:
        assert open_to(server.url).create([]) == ()
    assert open_to(server.url).project == PROJECT
