"""The calls of the emulated Cherry Servers API and their effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from infra.emulators.cherryservers import serializers
from infra.emulators.cherryservers.account import FOREIGN, PROJECT, TEAM, CherryCloud
from infra.emulators.cherryservers.catalogue import IMAGES
from infra.emulators.cherryservers.errors import bad, missing
from infra.emulators.cherryservers.models import CherryPlan, CherryServer
from infra.emulators.cherryservers.mutations import hostname, order, project_of, string_map
from infra.emulators.cherryservers.serializers import Json
from infra.emulators.vendor_common.errors import VendorRefusedError

T = TypeVar("T")

_FORBIDDEN = VendorRefusedError(403, "You are not allowed to perform this action.")
_UPDATES = frozenset({"name", "hostname", "tags", "bgp"})


class CherryRequest(msgspec.Struct, frozen=True):
    """An authenticated call. names: ids and names in the path, in order. query: as received, including `type[]`."""

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
    """The calls on one account. cap: maximum number of rows of a response, whatever `limit` says; None for no
    maximum."""

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
        self._routes = [(method, re.compile(pattern), name, does) for method, pattern, name, does in routes]

    def find(self, method: str, path: str) -> tuple[str, tuple[str, ...], Callable[[CherryRequest], Told]] | None:
        """Return a call's name, the ids in its path and its function, None for an unknown call. path: without the
        version."""
        for each, pattern, name, does in self._routes:
            found = pattern.fullmatch(path.rstrip("/") or "/")
            if found is not None and each == method:
                return name, tuple(found.groups()), does
        return None

    def about(self, action: str, asked: CherryRequest) -> str:
        """Return what a change refers to, for the log, whether or not it is permitted: hostname and tags."""
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
        return Told(201, serializers.Servers(self._cloud).whole(self._cloud.order(number, order(body))))

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
            asked, self._plans(asked), lambda page: [serializers.plan_whole(self._cloud, each) for each in page]
        )

    def _list_team_plans(self, asked: CherryRequest) -> Told:
        self._team(asked)
        return self._list_plans(asked)

    def _get_plan(self, asked: CherryRequest) -> Told:
        found = self._cloud.plan(asked.names[0])
        if found is None:
            raise missing("Plan")
        return Told(200, serializers.trimmed([serializers.plan_whole(self._cloud, found)], asked.one("fields"))[0])

    def _list_images(self, asked: CherryRequest) -> Told:
        if self._cloud.plan(asked.names[0]) is None:
            raise missing("Plan")
        rows = list(enumerate(IMAGES.items(), start=1))
        return self._page(
            asked,
            rows,
            lambda page: [{"id": number, "name": name, "slug": slug, "pricing": []} for number, (slug, name) in page],
        )

    # -- account

    def _team(self, asked: CherryRequest) -> None:
        if int(asked.names[0]) != TEAM:
            raise _FORBIDDEN

    def _list_teams(self, asked: CherryRequest) -> Told:
        return self._page(
            asked, [TEAM], lambda page: [{"id": each, "name": "example", "href": f"/teams/{each}"} for each in page]
        )

    def _list_projects(self, asked: CherryRequest) -> Told:
        self._team(asked)
        ours = [each for each in self._cloud.projects if each != FOREIGN]
        return self._page(asked, ours, lambda page: [serializers.project(self._cloud, each) for each in page])

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
            asked, list(self._cloud.keys.values()), lambda page: [serializers.ssh_key(each) for each in page]
        )

    def _get_ssh_key(self, asked: CherryRequest) -> Told:
        found = self._cloud.keys.get(int(asked.names[0]))
        if found is None:
            raise missing("SSH key")
        return Told(200, serializers.ssh_key(found))

    # -- lists

    def _page(self, asked: CherryRequest, rows: Sequence[T], shown: Callable[[Sequence[T]], Iterable[Json]]) -> Told:
        """Return the rows selected by limit and offset. 0 or no limit: all rows, or as many as one response
        contains."""
        limit, offset = (_number(asked.one(name), name) for name in ("limit", "offset"))
        most = min(each for each in (limit or len(rows), self.cap or len(rows), len(rows)))
        page = rows[offset : offset + most]
        return Told(200, serializers.trimmed(shown(page), asked.one("fields")), len(rows))


def _number(text: str, name: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise bad(f"Bad request: {name} is not a number.")
    return int(text or 0)
