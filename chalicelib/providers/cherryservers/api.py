"""The vendor calls that this provider makes; the decisions behind them are in other modules.

Nothing is sent and no secret is read before the first call, so a provider can be built while AWS is
unavailable. A failure then is an error of that call and does not remove the provider.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from urllib.parse import quote

import msgspec

from chalicelib import __version__
from chalicelib.model.secret import Secret
from chalicelib.policy.vendors.cherryservers import PROVIDER, CherrySettings
from chalicelib.providers.cherryservers.decoding import (
    TOTAL,
    CherryPlan,
    CherryServer,
    CreateServer,
    UnreadableServer,
    denied,
    error_for,
    read_all,
    read_one,
    read_plans,
    read_rows,
    total_of,
)
from chalicelib.providers.cherryservers.tokens import parse_api_token
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.credential_source import SecretSource, account_digest
from chalicelib.providers.kit.errors import (
    NotFound,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from chalicelib.providers.kit.http import Http, VendorRequest, VendorResponse
from chalicelib.providers.kit.rate_limit import CallPace, WaitLimit
from chalicelib.providers.kit.services import TtlCache

THREADS = 4  # concurrent orders: as many as the vendor accepts per second
_HOUR = 3600.0
_UNKNOWN_PLAN = 300.0  # seconds until an unknown plan is requested again
_STOPPING = (Unauthorized, Throttled)  # errors that would apply to all further orders
AGENT = f"kubernetes/cluster-autoscaler/outscaler-{__version__}"
# seconds that one provider object waits for the rate limit: a list, plans, and twenty orders
PATIENCE = 6.0
_Result = CherryServer | ProviderError | None


class CherryApi:
    """One project with one token, for one pass. Every method raises ProviderError. root: without a
    trailing slash. plans: cached for an hour, by slug."""

    def __init__(self, http: Http, root: str, project: int, plans: TtlCache[CherryPlan]) -> None:
        self.project = project
        self._rest, self._root, self._plans = http, root, plans

    def servers(self, odd: list[UnreadableServer] | None = None) -> tuple[CherryServer, ...]:
        """Return all servers of the project in the vendor's order, in every state, by GET
        projects/{id}/servers. The list is complete or the call fails (an inconsistent list is
        Transient). odd: receives the rows that cannot be read; without it one such row is
        Unknown."""

        def page(offset: int) -> tuple[int | None, list[CherryServer | UnreadableServer]]:
            params = {"offset": str(offset)} if offset else {}
            answer = self._get(f"projects/{self.project}/servers", params)
            return total_of(answer.call, answer.headers.get(TOTAL)), read_rows(answer)

        rows = read_all(
            f"servers of project {self.project}",
            page,
            lambda row: row.key if isinstance(row, UnreadableServer) else row.id,
        )
        unreadable = [row for row in rows if isinstance(row, UnreadableServer)]
        if odd is not None:
            odd += unreadable
        elif unreadable:
            raise Unknown(unreadable[0].why)
        return tuple(row for row in rows if isinstance(row, CherryServer))

    def server(self, number: int) -> CherryServer:
        """Return one server by its id; NotFound if it is gone."""
        return read_one(self._get(f"servers/{number}"), CherryServer)

    def create(self, bodies: Sequence[CreateServer]) -> tuple[_Result, ...]:
        """Buy servers, each by one POST that is never repeated. Returns one result per server, in
        order; raises nothing. Four requests run at a time, within the rate limit shared by all
        functions. Sending stops when a request is refused for its token or for too many calls, or
        when the rate limit has no slot soon enough. The unsent requests have the result None, and a
        result before or among them holds the error. Transient: whether the server was bought is
        unknown, also if a success cannot be decoded."""
        clients = [self._rest.clone() for _ in range(min(THREADS, len(bodies)))]
        idle, stopped = SimpleQueue[Http](), threading.Event()
        slots: list[Future[_Result] | ProviderError] = []
        try:
            # Leaving the pool waits for the answers to all orders, because one without an
            # answer may have been bought.
            with ThreadPoolExecutor(THREADS, thread_name_prefix="cherryservers") as pool:
                try:
                    for client in clients:
                        idle.put(client)
                    for body in bodies:
                        # first, because a reserved slot cannot be kept for later
                        client = idle.get()
                        if stopped.is_set():
                            break
                        try:
                            self._rest.reserve()
                        except ProviderError as error:
                            slots.append(error)
                            break
                        slots.append(
                            pool.submit(copy_context().run, self._buy, client, body, idle, stopped)
                        )
                except BaseException:
                    stopped.set()  # orders still in the queue are not sent
                    raise
        finally:
            for client in clients:
                client.close()
        results = [slot.result() if isinstance(slot, Future) else slot for slot in slots]
        throttled = [
            error.retry_after
            for error in results
            if isinstance(error, Throttled) and error is not slots[-1]
        ]
        if throttled:
            self._rest.refused(max(throttled))
        return (*results, *[None] * (len(bodies) - len(results)))

    def delete(self, number: int) -> None:
        """Delete a server by its id with one request; NotFound if it is gone. Repeating is safe."""
        if error := denied(
            self._rest.send(VendorRequest("DELETE", f"{self._root}/servers/{number}"))
        ):
            raise error

    def plan(self, slug: str, *, fresh: bool = False) -> CherryPlan | None:
        """Return the plan by its slug, None if it does not exist; at most an hour old, or current
        if its stock matters (fresh)."""
        if not fresh and slug in (cached := self._plans.get([slug])):
            return cached[slug]
        plan = self._current_plan(slug)
        self._plans.put({slug: plan}, known=_HOUR, unknown=_UNKNOWN_PLAN)
        return plan

    def plans(self) -> tuple[CherryPlan, ...]:
        """Return every plan that can be decoded, in the vendor's order, by GET plans. The list is
        complete or the call fails."""

        def page(offset: int) -> tuple[int | None, list[CherryPlan | int]]:
            answer = self._get("plans", {"offset": str(offset)} if offset else {})
            return total_of(answer.call, answer.headers.get(TOTAL)), read_plans(answer, offset)

        rows = read_all("plans", page, lambda row: row if isinstance(row, int) else row.id)
        return tuple(row for row in rows if isinstance(row, CherryPlan))

    def plan_read_at(self, slug: str) -> float:
        """Return when the cached plan was read, in epoch seconds; 0.0 if it is not cached."""
        return self._plans.put_at(slug)

    def tag(self, number: int, tags: Mapping[str, str]) -> None:
        """Replace all tags of a server, by PUT servers/{id}; NotFound if it is gone."""
        body = msgspec.json.encode({"tags": dict(tags)})
        url = f"{self._root}/servers/{number}"
        if error := denied(self._rest.send(VendorRequest("PUT", url, body=body))):
            raise error

    def reboot(self, number: int) -> str:
        """Restart a server by POST servers/{id}/actions, which is not repeated automatically;
        NotFound if it is gone. Returns the status of the answer, because the vendor says no more
        than that it has taken the request."""
        body = msgspec.json.encode({"type": "reboot"})
        answer = self._rest.send(
            VendorRequest("POST", f"{self._root}/servers/{number}/actions", body=body)
        )
        if error := denied(answer):
            raise error
        return str(answer.status)

    def _current_plan(self, slug: str) -> CherryPlan | None:
        # an empty segment or a step up in the path would address another resource
        if not slug.strip("."):
            return None
        try:
            answer = self._get(f"plans/{quote(slug, safe='')}")
        except NotFound:
            return None
        plan = read_one(answer, CherryPlan)
        if not plan.slug and not plan.id:
            raise Unknown(f"{answer.call}: the answer is not a plan")
        return plan

    def _get(self, path: str, params: Mapping[str, str] | None = None) -> VendorResponse:
        return self._rest.send(
            VendorRequest("GET", f"{self._root}/{path}", params=dict(params or {}), safe=True)
        )

    def _buy(
        self, http: Http, body: CreateServer, idle: SimpleQueue[Http], stopped: threading.Event
    ) -> _Result:
        """Send one POST. Returns None without sending once an order has met an
        error that applies to all."""
        call = VendorRequest(
            "POST", f"{self._root}/projects/{body.project_id}/servers", body=body.body()
        )
        try:
            if stopped.is_set():
                return None
            answer = http.send(call, booked=True)
            if error := denied(answer):
                raise error
            try:
                return read_one(answer, CherryServer)
            except Unknown as error:
                # a success that cannot be decoded: the server may have been bought
                raise Transient(error.message) from None
        except ProviderError as error:
            if isinstance(error, _STOPPING):
                stopped.set()
            return error
        finally:
            idle.put(http)


def open_api(connection: Connection, settings: CherrySettings, project: int) -> CherryApi:
    """Return the vendor's API for one pass, on one project. Sends nothing. Every call raises
    ProviderError, also if the secret cannot be read (Transient) or contains nothing usable
    (Unauthorized). The calls of all functions with one token share a rate limit and are
    spaced evenly: "4 per second" applies to every second, including the first."""
    services, now = connection.means, connection.now
    source = SecretSource(connection.read_secret, settings.credentials_secret, parse_api_token)

    def key(subject: str) -> str:
        return f"cherryservers/{account_digest(source.current())}/{subject}"

    pace = CallPace(
        services,
        lambda: key("api"),
        settings.calls_per_second,
        WaitLimit(PATIENCE),
        burst=0.0,
        lot=1,
    )
    rest = Http(
        PROVIDER,
        services,
        now,
        source=source,
        sign=lambda call: _signed(call, source.current()),
        secrets=lambda: (source.current(),),
        explain=error_for,
        pace=pace,
    )
    return CherryApi(
        rest,
        settings.endpoint,
        project,
        TtlCache(services.cache, lambda: key("plans"), CherryPlan, now),
    )


def _signed(request: VendorRequest, secret: Secret) -> VendorRequest:
    """Return the call with the token and the other headers that the vendor's clients
    send with every request."""
    headers = {
        "Authorization": f"Bearer {secret.reveal()}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": AGENT,
    }
    return msgspec.structs.replace(request, headers=request.headers | headers)
