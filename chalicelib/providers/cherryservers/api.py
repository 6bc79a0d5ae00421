"""The calls that this provider makes, and nothing of why (cherryservers.md §3)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from urllib.parse import quote

import msgspec

from chalicelib.model.secret import Secret
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.cherryservers.decoding import read_one
from chalicelib.providers.cherryservers.error_mapping import denied
from chalicelib.providers.cherryservers.models import CherryPlan, CherryServer, CreateServer
from chalicelib.providers.cherryservers.pagination import TOTAL, read_all, total_of
from chalicelib.providers.cherryservers.server_list import UnreadableServer, read_rows
from chalicelib.providers.errors import NotFound, ProviderError, Throttled, Transient, Unauthorized, Unknown
from chalicelib.providers.http import VendorRequest, VendorResponse
from chalicelib.providers.rest_client import RestClient

THREADS = 4  # orders on their way at once: as many as the vendor takes in a second (§3)
_HOUR = 3600.0
_UNKNOWN_PLAN = 300.0  # seconds until a plan that does not exist is asked for again
_STOPPING = (Unauthorized, Throttled)  # what one order meets, all others would
_Slot = Future[CherryServer | ProviderError | None]


class CherryApi:
    """One project with one token, for one pass. Every method raises ProviderError.

    root: without a slash at its end. plans: kept for an hour, by slug (D19).
    """

    def __init__(self, rest: RestClient[Secret], root: str, project: int, plans: TtlCache[CherryPlan]) -> None:
        self.project = project
        self._rest, self._root, self._plans = rest, root, plans

    def servers(self, odd: list[UnreadableServer] | None = None) -> tuple[CherryServer, ...]:
        """All servers of the project in the vendor's order, whatever their state, by GET projects/{id}/servers; read
        whole or not at all (a list that does not add up is Transient). odd: gets the rows that cannot be read; without
        it one such row is Unknown."""

        def page(offset: int) -> tuple[int | None, list[CherryServer | UnreadableServer]]:
            params = {"offset": str(offset)} if offset else {}
            answer = self._get(f"projects/{self.project}/servers", params)
            return total_of(answer.call, answer.headers.get(TOTAL)), read_rows(answer)

        rows = read_all(
            f"servers of project {self.project}",
            page,
            lambda row: row.key if isinstance(row, UnreadableServer) else row.id,
        )
        strange = [each for each in rows if isinstance(each, UnreadableServer)]
        if odd is not None:
            odd += strange
        elif strange:
            raise Unknown(strange[0].why)
        return tuple(each for each in rows if isinstance(each, CherryServer))

    def server(self, number: int) -> CherryServer:
        """One server by its id; NotFound where it is gone."""
        return read_one(self._get(f"servers/{number}"), CherryServer)

    def create(self, bodies: Sequence[CreateServer]) -> tuple[CherryServer | ProviderError | None, ...]:
        """Buy servers, each by one POST that is never repeated; an answer for each, in their order, and nothing raised.

        Four at a time, in the pace of all functions. Once one is refused for its token or for too many calls, or the
        pace has no turn soon enough, no more are sent: those are None, and one slot before or among them holds the
        error. Transient: whether it was bought is unknown, also where the answer of a success cannot be read.
        """
        slots: list[_Slot | ProviderError] = []
        orders = _Orders(self._rest, self._root, min(THREADS, len(bodies)))
        with orders as pool:
            for body in bodies:
                line = orders.free()  # first: a turn that was booked is not kept for later
                if orders.stopped.is_set():
                    break
                try:
                    self._rest.reserve()
                except ProviderError as error:
                    slots.append(error)
                    break
                slots.append(pool.submit(orders.give, line, body))
        results = [slot.result() if isinstance(slot, Future) else slot for slot in slots]
        throttled = [error.retry_after for error in results if isinstance(error, Throttled) and error is not slots[-1]]
        if throttled:
            self._rest.refused(max(throttled))
        return (*results, *[None] * (len(bodies) - len(results)))

    def delete(self, number: int) -> None:
        """Give a server back by its id, asked once; NotFound where it is gone. Repeating it does no harm."""
        if error := denied(self._rest.send(VendorRequest("DELETE", f"{self._root}/servers/{number}"))):
            raise error

    def plan(self, slug: str, *, fresh: bool = False) -> CherryPlan | None:
        """The plan by its slug, None where the vendor has none; at most an hour old, or asked now where its stock
        counts (fresh)."""
        if not fresh and slug in (kept := self._plans.get([slug])):
            return kept[slug]
        plan = self._asked_plan(slug)
        self._plans.put({slug: plan}, known=_HOUR, unknown=_UNKNOWN_PLAN)
        return plan

    def tag(self, number: int, tags: Mapping[str, str]) -> None:
        """Make these all the tags of a server, by PUT servers/{id}."""
        self._rest.send(
            VendorRequest("PUT", f"{self._root}/servers/{number}", body=msgspec.json.encode({"tags": dict(tags)}))
        )

    def expect(self, calls: int) -> None:
        """So many calls will follow soon (budget.py)."""
        self._rest.announce_calls(calls)

    def _asked_plan(self, slug: str) -> CherryPlan | None:
        if not slug.strip("."):  # nothing, or a step up in the path: another address altogether
            return None
        try:
            answer = self._get(f"plans/{quote(slug, safe='')}")
        except NotFound:
            return None
        plan = read_one(answer, CherryPlan)
        if not plan.slug and not plan.id:
            raise Unknown(f"{answer.call}: the answer is no plan")
        return plan

    def _get(self, path: str, params: Mapping[str, str] | None = None) -> VendorResponse:
        return self._rest.send(VendorRequest("GET", f"{self._root}/{path}", params=dict(params or {}), safe=True))


class _Orders:
    """Orders in several threads, each over connections of its own, which are let go of at the end."""

    def __init__(self, rest: RestClient[Secret], root: str, threads: int) -> None:
        self._root, self._lines = root, [rest.clone() for _ in range(threads)]
        self._idle: SimpleQueue[RestClient[Secret]] = SimpleQueue()
        self._pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="cherryservers")
        self.stopped = threading.Event()

    def __enter__(self) -> ThreadPoolExecutor:
        for line in self._lines:
            self._idle.put(line)
        return self._pool

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.stopped.set()  # what still waits in the queue is not sent
        self._pool.shutdown(wait=True)
        for line in self._lines:
            line.close()

    def free(self) -> RestClient[Secret]:
        """A line that nothing is sent over; waits until there is one."""
        return self._idle.get()

    def give(self, line: RestClient[Secret], body: CreateServer) -> CherryServer | ProviderError | None:
        """One POST; None, and nothing sent, once an order has met what all others would meet."""
        try:
            return None if self.stopped.is_set() else self._given(line, body)
        except _STOPPING as error:
            self.stopped.set()
            return error
        except ProviderError as error:
            return error
        finally:
            self._idle.put(line)

    def _given(self, line: RestClient[Secret], body: CreateServer) -> CherryServer:
        call = VendorRequest("POST", f"{self._root}/projects/{body.project_id}/servers", body=body.body())
        answer = line.send(call, booked=True)
        if error := denied(answer):
            raise error
        try:
            return read_one(answer, CherryServer)
        except Unknown as error:  # a success that cannot be read: it may have been bought
            raise Transient(error.message) from None
