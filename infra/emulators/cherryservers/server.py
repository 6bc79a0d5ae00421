"""The emulated Cherry Servers API: tokens, the rate limit, calls and checks; on a
loopback port, over HTTP or TLS.

with CherryHttpServer(Cloud(clock)) as server:
    server.add_token("CHERRY-EXAMPLE-TOKEN")
    server.cloud.add_server("workers")
    ...                                             # a client with the root server.root
    assert [call.line for call in server.log] == ["GET /projects/10001/servers", …]

The vendor documents a limit of four requests per second from one address, and status 429 above it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from infra.emulators.certificates import Pair
from infra.emulators.cherryservers import serializers
from infra.emulators.cherryservers.account import FOREIGN, PROJECT, TEAM, CherryCloud, bad, missing
from infra.emulators.cherryservers.models import IMAGES, CherryPlan, CherryServer, Order
from infra.emulators.cherryservers.serializers import Json
from infra.emulators.vendor_common.dispatcher import VendorDispatcher
from infra.emulators.vendor_common.fault_injection import (
    NEVER_RECEIVED,
    VendorFault,
    VendorFaults,
    VendorRefusal,
    VendorRefusedError,
    VendorThrottle,
)
from infra.emulators.vendor_common.http_messages import Answer, Incoming, spoilt
from infra.emulators.vendor_common.server import VendorServer

WRITES = frozenset({"create_server", "update_server", "delete_server", "act_on_server"})
RETRY_AFTER = 7
LIMIT = (4, 1.0)
OVER_LIMIT = VendorRefusal(429, "Too many requests.")
REFUSALS = {
    VendorFault.UNAUTHORIZED: VendorRefusal(401, "Invalid credentials"),
    VendorFault.EXPIRED_TOKEN: VendorRefusal(401, "Invalid credentials"),
    VendorFault.FORBIDDEN: VendorRefusal(403, "You are not allowed to perform this action."),
    VendorFault.NOT_FOUND: VendorRefusal(404, "Project not found."),
    VendorFault.CONFLICT: VendorRefusal(409, "Another change is running."),
    VendorFault.THROTTLED: OVER_LIMIT,
    VendorFault.THROTTLED_FOR: OVER_LIMIT,
    VendorFault.SERVER_ERROR: VendorRefusal(500, "Internal server error."),
    VendorFault.OLD_TIME: VendorRefusal(400, "Bad request."),
}


_HOSTNAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?", re.ASCII)


def order(body: Mapping[str, Any]) -> Order:
    """Parse the body of a creation. It accepts plan_id and numbers as text, which other
    clients of the vendor send."""
    return Order(
        plan=_name(body.get("plan") or body.get("plan_id"), "plan"),
        region=_name(body.get("region"), "region"),
        hostname=hostname(body.get("hostname", "")),
        image=_text(body.get("image", ""), "image"),
        ssh_keys=_numbers(body.get("ssh_keys")),
        user_data=_user_data(body.get("user_data", "")),
        tags=string_map(body.get("tags") or {}, "tags"),
        spot=_flag(body.get("spot_market", False)),
        os_partition_size=_whole(body.get("os_partition_size", 0), "os_partition_size"),
    )


def project_of(body: Mapping[str, Any], default: int) -> int:
    """Return the project in the body. Raises Refused if it is not a number."""
    return _whole(body.get("project_id", default), "project_id")


def hostname(value: object) -> str:
    text = _text(value, "hostname")
    if text and not _HOSTNAME.fullmatch(text):
        raise bad("Bad request: hostname is not valid.")
    return text


def string_map(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(each, str) for pair in value.items() for each in pair
    ):
        raise bad(f"Bad request: {name} must be an object of strings.")
    return dict(value)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise bad(f"Bad request: {name} must be a string.")
    return value


def _name(value: object, name: str) -> str:
    text = (
        str(value)
        if isinstance(value, int) and not isinstance(value, bool)
        else _text(value or "", name)
    )
    if not text:
        raise bad(f"Bad request: {name} is required.")
    return text


def _whole(value: object, name: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad(f"Bad request: {name} must be a number.")
    return value


def _numbers(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise bad("Bad request: ssh_keys must be a list.")
    return tuple(_whole(each, "ssh_keys") for each in value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool | int):
        raise bad("Bad request: spot_market must be a boolean.")
    return bool(value)


def _user_data(value: object) -> str:
    text = _text(value, "user_data")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise bad("Bad request: user_data must be base64.") from None
    return text


T = TypeVar("T")

_FORBIDDEN = VendorRefusedError(403, "You are not allowed to perform this action.")
_UPDATES = frozenset({"name", "hostname", "tags", "bgp"})


class CherryRequest(msgspec.Struct, frozen=True):
    """An authenticated call. names: ids and names in the path, in order. query: as
    received, including `type[]`."""

    names: tuple[str, ...]
    query: Sequence[tuple[str, str]]
    body: bytes

    def one(self, name: str) -> str:
        """Return a parameter's last value, "" if it is absent."""
        return dict(self.query).get(name, "")

    def many(self, name: str) -> list[str]:
        """Return all values of `name[]`."""
        return [value for key, value in self.query if key in (name, f"{name}[]")]

    def json(self) -> Mapping[str, Any]:
        """Return the body. Raises Refused if it is not an object."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise bad("Bad request: the body is not a JSON object.") from None


class Told(msgspec.Struct, frozen=True):
    """A response. body: None for an empty one. total: rows of a list before pagination."""

    status: int
    body: object = None
    total: int | None = None


class CherryHandlers:
    """The calls on one account. cap: maximum number of rows of a response, whatever `limit`
    says; None for no maximum."""

    def __init__(self, cloud: CherryCloud) -> None:
        self._cloud = cloud
        self.cap: int | None = None
        servers, any_name = r"/projects/(\d+)/servers", r"([^/]+)"
        routes: list[tuple[str, str, str, Callable[[CherryRequest], Told]]] = [
            ("GET", servers, "list_servers", self._list_servers),
            ("POST", servers, "create_server", self._create_server),
            ("GET", r"/servers/(\d+)", "get_server", self._get_server),
            ("PUT", r"/servers/(\d+)", "update_server", self._update_server),
            ("DELETE", r"/servers/(\d+)", "delete_server", self._delete_server),
            ("POST", r"/servers/(\d+)/actions", "act_on_server", self._act_on_server),
            ("GET", "/plans", "list_plans", self._list_plans),
            ("GET", rf"/plans/{any_name}", "get_plan", self._get_plan),
            ("GET", rf"/plans/{any_name}/images", "list_images", self._list_images),
            ("GET", r"/teams/(\d+)/plans", "list_team_plans", self._list_team_plans),
            ("GET", "/teams", "list_teams", self._list_teams),
            ("GET", r"/teams/(\d+)/projects", "list_projects", self._list_projects),
            ("GET", r"/projects/(\d+)", "get_project", self._get_project),
            ("GET", "/regions", "list_regions", self._list_regions),
            ("GET", rf"/regions/{any_name}", "get_region", self._get_region),
            ("GET", "/ssh-keys", "list_ssh_keys", self._list_ssh_keys),
            ("GET", r"/ssh-keys/(\d+)", "get_ssh_key", self._get_ssh_key),
        ]
        self._routes = [
            (method, re.compile(pattern), name, does) for method, pattern, name, does in routes
        ]

    def find(
        self, method: str, path: str
    ) -> tuple[str, tuple[str, ...], Callable[[CherryRequest], Told]] | None:
        """Return a call's name, the ids in its path and its function, None for an unknown call.
        path: without the version."""
        for each, pattern, name, does in self._routes:
            found = pattern.fullmatch(path.rstrip("/") or "/")
            if found is not None and each == method:
                return name, tuple(found.groups()), does
        return None

    def about(self, action: str, asked: CherryRequest) -> str:
        """Return what a change refers to, for the log, whether or not it
        is permitted: hostname and tags."""
        try:
            if action == "create_server":
                wanted = order(asked.json())
                tags = " ".join(f"{key}={value}" for key, value in sorted(wanted.tags.items()))
                return f"hostname={wanted.hostname} {tags}".strip()
            found = self._cloud.servers.get(int(asked.names[0]))
            return f"hostname={found.hostname}" if found is not None else ""
        except VendorRefusedError:
            return "not understood"

    # -- servers

    def _list_servers(self, asked: CherryRequest) -> Told:
        shown, number = serializers.Servers(self._cloud), self._project(asked.names[0])
        wanted = asked.many("status")
        rows = [each for each in self._cloud.listed(number) if not wanted or each[2] in wanted]
        return self._page(asked, rows, lambda page: [shown.row(*each) for each in page])

    def _get_server(self, asked: CherryRequest) -> Told:
        whole = serializers.Servers(self._cloud).whole(self._server(asked))
        return Told(200, serializers.trimmed([whole], asked.one("fields"))[0])

    def _create_server(self, asked: CherryRequest) -> Told:
        number, body = self._project(asked.names[0]), asked.json()
        if project_of(body, number) != number:
            raise bad("Bad request: project_id is of another project.")
        return Told(
            201, serializers.Servers(self._cloud).whole(self._cloud.order(number, order(body)))
        )

    def _update_server(self, asked: CherryRequest) -> Told:
        server, body = self._server(asked), asked.json()
        strange = sorted(set(body) - _UPDATES)
        if strange:
            raise bad(f"Bad request: {strange[0]} cannot be changed.")
        if "tags" in body:
            server.tags = string_map(body["tags"], "tags")
        if "name" in body:
            server.name = str(body["name"])
        if "hostname" in body:
            server.hostname = hostname(body["hostname"])
        server.bgp = bool(body.get("bgp", server.bgp))
        return Told(201, serializers.Servers(self._cloud).whole(server))

    def _delete_server(self, asked: CherryRequest) -> Told:
        server = self._server(asked)
        self._cloud.terminate(server)
        return Told(204)

    def _act_on_server(self, asked: CherryRequest) -> Told:
        server = self._server(asked)
        self._cloud.act(server, _text(asked.json().get("type", ""), "type"))
        return Told(201, serializers.Servers(self._cloud).whole(server))

    def _server(self, asked: CherryRequest) -> CherryServer:
        found = self._cloud.servers.get(int(asked.names[0]))
        if found is None:
            raise missing("Server")
        if found.project != PROJECT:
            raise _FORBIDDEN
        return found

    def _project(self, name: str) -> int:
        number = int(name)
        if number == FOREIGN:
            raise _FORBIDDEN
        if number not in self._cloud.projects:
            raise missing("Project")
        return number

    # -- catalogue

    def _plans(self, asked: CherryRequest) -> list[CherryPlan]:
        types, place = asked.many("type"), asked.one("region_id")
        where = self._cloud.region(place) if place else None
        if place and where is None:
            raise bad(f"Region {place} does not exist.")
        return [
            plan
            for plan in self._cloud.plans.values()
            if (not types or plan.type in types) and (where is None or where.slug in plan.regions)
        ]

    def _list_plans(self, asked: CherryRequest) -> Told:
        return self._page(
            asked,
            self._plans(asked),
            lambda page: [serializers.plan_whole(self._cloud, each) for each in page],
        )

    def _list_team_plans(self, asked: CherryRequest) -> Told:
        self._team(asked)
        return self._list_plans(asked)

    def _get_plan(self, asked: CherryRequest) -> Told:
        found = self._cloud.plan(asked.names[0])
        if found is None:
            raise missing("Plan")
        return Told(
            200,
            serializers.trimmed([serializers.plan_whole(self._cloud, found)], asked.one("fields"))[
                0
            ],
        )

    def _list_images(self, asked: CherryRequest) -> Told:
        if self._cloud.plan(asked.names[0]) is None:
            raise missing("Plan")
        rows = list(enumerate(IMAGES.items(), start=1))
        return self._page(
            asked,
            rows,
            lambda page: [
                {"id": number, "name": name, "slug": slug, "pricing": []}
                for number, (slug, name) in page
            ],
        )

    # -- account

    def _team(self, asked: CherryRequest) -> None:
        if int(asked.names[0]) != TEAM:
            raise _FORBIDDEN

    def _list_teams(self, asked: CherryRequest) -> Told:
        return self._page(
            asked,
            [TEAM],
            lambda page: [
                {"id": each, "name": "example", "href": f"/teams/{each}"} for each in page
            ],
        )

    def _list_projects(self, asked: CherryRequest) -> Told:
        self._team(asked)
        ours = [each for each in self._cloud.projects if each != FOREIGN]
        return self._page(
            asked, ours, lambda page: [serializers.project(self._cloud, each) for each in page]
        )

    def _get_project(self, asked: CherryRequest) -> Told:
        return Told(200, serializers.project(self._cloud, self._project(asked.names[0])))

    def _list_regions(self, asked: CherryRequest) -> Told:
        rows = list(self._cloud.regions.values())
        return self._page(asked, rows, lambda page: [serializers.region(each) for each in page])

    def _get_region(self, asked: CherryRequest) -> Told:
        found = self._cloud.region(asked.names[0])
        if found is None:
            raise missing("Region")
        return Told(200, serializers.region(found))

    def _list_ssh_keys(self, asked: CherryRequest) -> Told:
        return self._page(
            asked,
            list(self._cloud.keys.values()),
            lambda page: [serializers.ssh_key(each) for each in page],
        )

    def _get_ssh_key(self, asked: CherryRequest) -> Told:
        found = self._cloud.keys.get(int(asked.names[0]))
        if found is None:
            raise missing("SSH key")
        return Told(200, serializers.ssh_key(found))

    # -- lists

    def _page(
        self,
        asked: CherryRequest,
        rows: Sequence[T],
        shown: Callable[[Sequence[T]], Iterable[Json]],
    ) -> Told:
        """Return the rows selected by limit and offset. 0 or no limit: all rows, or as many
        as one response contains."""
        limit, offset = (_number(asked.one(name), name) for name in ("limit", "offset"))
        most = min(each for each in (limit or len(rows), self.cap or len(rows), len(rows)))
        page = rows[offset : offset + most]
        return Told(200, serializers.trimmed(shown(page), asked.one("fields")), len(rows))


def _number(text: str, name: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise bad(f"Bad request: {name} is not a number.")
    return int(text or 0)


VERSION = "/v1"


class Token(msgspec.Struct):
    """An API token of the account. writes: it permits changes. active: it is accepted."""

    writes: bool = True
    active: bool = True


class CherryLoggedRequest(msgspec.Struct, frozen=True):
    """One call. path: without version and query. about: the subject of a change. at: epoch seconds.
    It contains nothing of the credential."""

    method: str
    path: str
    query: str
    action: str
    status: int
    at: float
    agent: str = ""
    about: str = ""

    @property
    def writes(self) -> bool:
        return self.action in WRITES

    @property
    def line(self) -> str:
        return " ".join(
            part
            for part in (
                self.method,
                self.path + (f"?{self.query}" if self.query else ""),
                self.about,
            )
            if part
        )


class CherryDispatcher(VendorDispatcher[CherryLoggedRequest]):
    """The API of an account.

    tokens: text -> permissions. arrived: notified of each call. bodies: bodies of creations,
    unchanged. redirect: target to which all reads are redirected, "" for none. counts: lists
    contain their total length. wordy: errors have the form `errors`/`error` that upstream decodes.
    typed: empty responses have a content type. hidden: rows that lists count but do not show.
    shaped: transforms successful responses.
    """

    def __init__(self, cloud: CherryCloud) -> None:
        super().__init__(
            cloud,
            VendorFaults(WRITES, REFUSALS, retry_after=RETRY_AFTER),
            VendorThrottle(cloud.clock, OVER_LIMIT),
            VendorRefusedError(500, "the emulation has crashed"),
        )
        self.throttle.limits[""] = LIMIT
        self.cloud, self.actions = cloud, CherryHandlers(cloud)
        self.tokens: dict[str, Token] = {}
        self.arrived = threading.Condition()
        self.bodies: list[bytes] = []
        self.redirect = ""
        self.counts, self.wordy, self.typed, self.hidden = True, False, False, 0
        self.shaped: Callable[[object], object] = lambda body: body

    def handle(self, incoming: Incoming) -> Answer:
        path = incoming.path.removeprefix(VERSION)
        found = (
            self.actions.find(incoming.method, path)
            if incoming.path.startswith(f"{VERSION}/")
            else None
        )
        action, names, does = found or ("", (), _nothing)
        asked, fault = (
            CherryRequest(names, incoming.query(), incoming.body),
            self.faults.take(action),
        )
        about = self.actions.about(action, asked) if action in WRITES else ""
        if action == "create_server":
            self.bodies.append(incoming.body)
        try:
            answer = self._answer(incoming, action, fault, lambda: does(asked))
        except VendorRefusedError as problem:
            answer = self.refusal(problem)
        self.log.append(
            CherryLoggedRequest(
                incoming.method,
                path,
                incoming.target.partition("?")[2],
                action,
                answer.status,
                self.cloud.clock(),
                incoming.headers.get("user-agent", ""),
                about,
            )
        )
        with self.arrived:
            self.arrived.notify_all()
        # A response without a body cannot be truncated, so it is not sent at all.
        return spoilt(
            answer,
            VendorFault.LOST_ANSWER if fault is VendorFault.CUT_OFF and not answer.body else fault,
        )

    def _answer(
        self, incoming: Incoming, action: str, fault: VendorFault | None, does: Callable[[], Told]
    ) -> Answer:
        self.faults.refuse(fault)
        if fault in NEVER_RECEIVED:
            return Answer(200, b"")
        if self.redirect and incoming.method == "GET":
            return Answer(301, b"", {"Location": self.redirect, "Content-Type": ""})
        self._admit(incoming.headers.get("authorization", ""), action)
        return self._told(does())

    def _admit(self, authorization: str, action: str) -> None:
        """Admit the call. Raises Refused if the token is invalid, exceeds the rate limit,
        or lacks the permission."""
        kind, _, text = authorization.partition(" ")
        token = self.tokens.get(text) if kind == "Bearer" else None
        if token is None or not token.active:
            raise VendorRefusedError(401, "Invalid credentials")
        self.throttle.count(text)
        if action in WRITES and not token.writes:
            raise VendorRefusedError(403, "You are not allowed to perform this action.")

    def _told(self, told: Told) -> Answer:
        total = None if told.total is None or not self.counts else told.total + self.hidden
        headers = {} if total is None else {"X-Total-Count": str(total)}
        if told.body is None:
            return Answer(
                told.status, b"", headers if self.typed else {**headers, "Content-Type": ""}
            )
        return Answer(told.status, json.dumps(self.shaped(told.body)).encode(), headers)

    def refusal(self, problem: VendorRefusedError) -> Answer:
        body: dict[str, object] = {"code": problem.status, "message": problem.message}
        if self.wordy:
            body = {"errors": [problem.message], "error": problem.message}
        after = {} if problem.retry_after is None else {"Retry-After": str(problem.retry_after)}
        return Answer(problem.status, json.dumps(body).encode(), after)


def _nothing(asked: CherryRequest) -> Told:
    del asked
    raise missing("Page")


class CherryHttpServer(VendorServer[CherryDispatcher, CherryLoggedRequest]):
    """Serves an account. As a context manager it starts on entry and stops on
    exit; the account stays."""

    def __init__(
        self, cloud: CherryCloud, *, tls: Pair | None = None, in_process: bool = False
    ) -> None:
        super().__init__(CherryDispatcher(cloud), tls=tls, in_process=in_process)
        self.cloud = cloud

    @property
    def root(self) -> str:
        """Return the API's address with its version, as in a client's endpoint."""
        return f"{self.url}{VERSION}"

    def add_token(self, text: str, *, writes: bool = True) -> None:
        """Accept this token from now on. writes: it permits changes."""
        self.front.tokens[text] = Token(writes)
