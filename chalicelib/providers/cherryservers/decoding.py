"""The types of Cherry Servers' API, and the reading of responses that deviate from its
documentation, so that one unexpected value does not hide a project's servers.

Responses contain more keys than the documentation and occasionally another type. A key with a wrong
type counts as missing, with two exceptions. A row without a usable id is invalid, because an
underestimated number of servers leads to purchases. Tags decide which pool owns a server: a map of
tags is read value by value, and any other value except null makes the row invalid for the same
reason. An invalid row makes only its own pool's size unknown: its readable tags show which pools it
may belong to.

As far as is known, the vendor sends all items of a list if the request names no page, and the total
in a header. If fewer arrive, the rest is requested by offset; without the header, until no new item
arrives. An inconsistent list is read once more, and after that the call fails, because a short list
would be taken for the pool's size.

The vendor has no error codes, only statuses and messages. The message text is used for orders only:
a 404 of a server means that the server is gone, whatever its text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from chalicelib.net.json_repair import read_json
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.kit.errors import (
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
    class_for,
    shape_error,
)
from chalicelib.providers.kit.http import VendorResponse

# -- types

CLUSTER_TAG, POOL_TAG = "k8s-cluster", "k8s-nodepool"
OPERATION_TAG, DEFINITION_TAG = "outscaler-operation", "outscaler-definition"
MANAGED_TAG = "outscaler-managed"

Id = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=300)]
Slug = Annotated[str, msgspec.Meta(max_length=63)]  # it becomes the value of a label
Whole = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
"""Of a plan: cores, GB, EUR. A value out of bounds counts as not sent."""


class Region(msgspec.Struct, frozen=True):
    """Where servers stand. slug is the name in requests; old and new slugs are equal here."""

    id: int = 0
    slug: Slug = ""
    name: Text = ""
    location: str = ""


class Pricing(msgspec.Struct, frozen=True):
    """One price. unit: `Hourly`, `Spot hourly`, `Monthly` and so on; taxed: whether
    value added tax is in it."""

    price: Amount = 0.0
    taxed: bool = False
    currency: Text = ""
    unit: Text = ""
    id: int = 0
    unit_price: float = 0.0


class AvailableRegion(msgspec.Struct, frozen=True):
    """A region where a plan is sold, with its stock there."""

    id: int = 0
    name: Text = ""
    slug: Slug = ""
    region_iso_2: str = ""
    stock_qty: Whole = 0
    spot_qty: Whole = 0
    href: str = ""
    location: str = ""


class Cpus(msgspec.Struct, frozen=True):
    """cores: of the whole server, not of each of `count` processors. frequency in `unit`."""

    count: int = 0
    name: str = ""
    cores: Whole = 0
    frequency: float = 0.0
    unit: Text = ""


class Memory(msgspec.Struct, frozen=True):
    """total in `unit`."""

    count: int = 0
    total: Whole = 0
    unit: Text = ""
    name: str = ""


class Storage(msgspec.Struct, frozen=True):
    """`count` disks of `size` `unit` each."""

    count: int = 0
    name: str = ""
    size: Amount = 0.0
    unit: Text = ""
    type: str = ""


class Named(msgspec.Struct, frozen=True):
    """Raid, Nics and Bandwidth: only a name."""

    name: str = ""


class Specs(msgspec.Struct, frozen=True):
    """A server's hardware."""

    cpus: Cpus = Cpus()
    memory: Memory = Memory()
    storage: tuple[Storage, ...] = ()
    raid: Named = Named()
    nics: Named = Named()
    bandwidth: Named = Named()


class CherryPlan(msgspec.Struct, frozen=True):
    """A kind of server. Requests and node labels use slug; name is for
    display and may contain blanks."""

    id: int = 0
    slug: Slug = ""
    name: Text = ""
    custom: bool = False
    type: str = ""
    category: str = ""
    title: str = ""
    href: str = ""
    specs: Specs = Specs()
    pricing: tuple[Pricing, ...] = ()
    available_regions: tuple[AvailableRegion, ...] = ()


class CherryServer(msgspec.Struct, frozen=True):
    """A server. termination_date: of a spot server that the vendor takes back, "None" otherwise.
    The vendor also sends its password, which is not decoded so that it cannot be shown."""

    id: Id
    name: Text = ""
    hostname: Text = ""
    state: Text = ""
    status: Text = ""
    tags: dict[str, str] = {}
    region: Region = Region()
    plan: CherryPlan = CherryPlan()
    created_at: str = ""
    spot_instance: bool = False
    termination_date: Text = ""


class CherryRefusal(msgspec.Struct, frozen=True):
    """An error body: `code` and `message` in real responses; `errors` and
    `error` in upstream's client."""

    code: int = 0
    message: str = ""
    error: str = ""
    errors: tuple[str, ...] = ()


class CreateServer(msgspec.Struct, frozen=True):
    """A server to buy. os_partition_size: GB, 0 for the image's default.
    user_data: in base64, "" for none."""

    project_id: int
    plan: str
    hostname: str
    image: str
    region: str
    ssh_keys: tuple[int, ...] | None = None
    ip_addresses: None = None
    user_data: str = ""
    tags: dict[str, str] = {}
    os_partition_size: int = 0
    spot_market: bool = False

    def __repr__(self) -> str:
        return f"CreateServer({self.hostname})"  # user data contains a bootstrap token

    def body(self) -> bytes:
        """Return the request's JSON. Empty values are left out, except the two lists,
        which are null if empty."""
        always = {"ssh_keys": list(self.ssh_keys) if self.ssh_keys else None, "ip_addresses": None}
        fields = {
            key: value
            for key, value in msgspec.structs.asdict(self).items()
            if value and key not in always
        }
        return msgspec.json.encode(fields | always)


# -- items

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

_DEEPEST = 8  # maximum nesting of structs; the deepest type has four
_TAGS_FIELD = "tags"  # of the item itself, not of its nested objects
_UNREADABLE = (msgspec.ValidationError, OverflowError)


def read_one(response: VendorResponse, kind: type[S]) -> S:
    """Decode the response's body as that struct. Raises Transient if it is not JSON, Unknown
    if it is not such an item."""
    return read_row(decoded(response), kind, response.call)


def decoded(response: VendorResponse) -> Any:
    """Return the body as JSON. Raises Transient if it is not JSON."""
    try:
        return read_json(response.body)
    except msgspec.DecodeError:
        raise Transient(f"{response.call}: the answer is not complete JSON") from None


def read_row(value: Any, kind: type[S], place: str) -> S:
    """Decode a value as that struct. Raises Unknown if it is not such an
    item. place: for the error."""
    with suppress(*_UNREADABLE, RecursionError):
        return msgspec.convert(value, kind, strict=False)
    try:  # key by key
        return _struct(value, kind, _DEEPEST)
    except msgspec.ValidationError as error:
        raise shape_error(place, error) from None


def _struct(value: Any, kind: type[S], depth: int) -> S:
    """Raises ValidationError only for a value that is not an object, a missing required key, and
    tags that are not a map."""
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError(f"{kind.__name__} is not an object")
    if depth <= 0:
        raise msgspec.ValidationError("nested too deeply")
    fields: dict[str, Any] = {}
    for name, hint, required in _fields(kind):
        if name not in value:
            if required:
                raise msgspec.ValidationError(f"it has no {name}")
            continue
        try:
            fields[name] = _value(value[name], hint, depth)
        except _UNREADABLE:
            if required or (name == _TAGS_FIELD and depth == _DEEPEST):
                raise msgspec.ValidationError(f"its {name} cannot be read") from None
    return kind(**fields)


@lru_cache(maxsize=64)
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, bool], ...]:
    """Return (name, type, whether it has no default) of a struct's fields, which
    are named as its JSON keys."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (field.name, hints[field.name], field.required) for field in msgspec.structs.fields(kind)
    )


def _value(value: Any, kind: Any, depth: int) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(value, kind, depth - 1)
    if origin is tuple:  # the items that can be decoded
        if not isinstance(value, list):
            raise msgspec.ValidationError("no list")
        items = []
        for item in value:
            with suppress(*_UNREADABLE):
                items.append(_value(item, inner[0], depth))
        return tuple(items)
    # a map of texts; numbers are kept as written. PHP encodes an empty map as an empty list
    if origin is dict:
        if value is None or value in ([], ""):
            return {}
        if not isinstance(value, Mapping):
            raise msgspec.ValidationError("no map")
        return {
            key: text if isinstance(text, str) else msgspec.json.encode(text).decode()
            for key, text in value.items()
        }
    if origin in (Union, UnionType) and value is not None:
        return _value(value, next(member for member in inner if member is not type(None)), depth)
    return msgspec.convert(value, kind, strict=False)


# -- lists

TOTAL = "x-total-count"
MOVED = "ListMoved"  # code for a list that changes while it is read
_MOST_PAGES = 200
_MOST_DIGITS = 9

Page = tuple[int | None, list[T]]  # (total, None if not reported; items on this page)


def total_of(call: str, header: str | None) -> int | None:
    """Return the total in the header; None if there is none. Raises
    Transient if it is not a number."""
    if header is None:
        return None
    text = header.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise Transient(f"{call}: the number of rows is not to be read", code=MOVED)
    return int(text)


def read_all(
    what: str, page: Callable[[int], Page[T]], identity: Callable[[T], object]
) -> tuple[T, ...]:
    """Return all items, each once, in the vendor's order. page: offset -> the rows from there on.
    Raises what `page` raises, and Transient for an inconsistent list."""
    totals, items = set[int](), dict[object, T]()
    for _ in range(2):
        totals, items, offset = set(), {}, 0
        for _ in range(_MOST_PAGES):
            total, rows = page(offset)
            offset, before = offset + len(rows), len(items)
            totals |= set() if total is None else {total}
            items.update((identity(row), row) for row in rows)
            if not rows or (len(items) == before if total is None else offset >= total):
                break
        if len(totals) <= 1 and len(items) >= min(totals, default=0):
            return tuple(items.values())
    raise Transient(
        f"{what}: {len(items)} of {max(totals)} came, the list changes while it is read", code=MOVED
    )


def read_plans(response: VendorResponse, first: int) -> list[CherryPlan | int]:
    """Return the plans of a page, and in place of a row without an id or one that cannot be read
    a number below 0 of its own. first: the first row's number. Raises Transient if it is not JSON,
    Unknown if it is not a list."""
    rows = decoded(response)
    if not isinstance(rows, list):
        raise Unknown(f"{response.call}: the answer is not a list")
    plans: list[CherryPlan | int] = []
    for number, row in enumerate(rows, first + 1):
        plan: CherryPlan | int = -number
        with suppress(Unknown):
            plan = read_row(row, CherryPlan, f"{response.call}: row {number}")
        plans.append(plan if isinstance(plan, CherryPlan) and plan.id > 0 else -number)
    return plans


class UnreadableServer(msgspec.Struct, frozen=True):
    """A row that cannot be counted as a server: it has no usable id, another row of the page has
    its id, or its tags of a pool are not texts. tags: those of a pool, a value of None is
    unreadable; None: no tags can be read. key: of the row's contents, so that a row on two pages
    counts once."""

    key: str
    why: str
    tags: dict[str, str | None] | None

    def may_be_of(self, definition: Definition, *, untagged: bool = False) -> bool:
        """Whether the row may be a server of that pool. untagged: also accept a row without either
        tag, because a server that was just bought may have none."""
        if self.tags is None or (untagged and not self.tags):
            return True
        pool = {CLUSTER_TAG: definition.cluster_name, POOL_TAG: definition.pool}
        return all(self.tags.get(name, "") in (None, text) for name, text in pool.items())


def read_rows(response: VendorResponse) -> list[CherryServer | UnreadableServer]:
    """Return the servers of a page and its odd rows. Raises Transient if it is not JSON, Unknown if
    it is not a list or none of its rows can be read."""
    rows = decoded(response)
    if not isinstance(rows, list):
        raise Unknown(f"{response.call}: the answer is not a list")
    servers, problem = list[CherryServer | UnreadableServer](), None
    keys: dict[int, set[str]] = {}  # id -> different rows with it
    for number, row in enumerate(rows):
        try:
            server = read_row(row, CherryServer, f"{response.call}: row {number}")
        except Unknown as error:
            problem = error
            servers.append(_unreadable(row, error.message))
            continue
        odd = _unreadable(row, f"server {server.id} has tags that are not strings")
        if None in (odd.tags or {}).values():
            servers.append(odd)
        else:
            servers.append(server)
            keys.setdefault(server.id, set()).add(odd.key)
    if problem is not None and all(isinstance(server, UnreadableServer) for server in servers):
        raise problem
    return [
        _unreadable(row, f"{len(keys[server.id])} rows have the id {server.id}")
        if isinstance(server, CherryServer) and len(keys[server.id]) > 1
        else server
        for server, row in zip(servers, rows, strict=True)
    ]


def _unreadable(row: Any, why: str) -> UnreadableServer:
    tags = row.get("tags") if isinstance(row, Mapping) else 0
    texts: dict[str, str | None] | None = {}
    if tags not in (None, [], ""):
        pool_tags = (CLUSTER_TAG, POOL_TAG)
        texts = (
            {name: _text(tags[name]) for name in pool_tags if name in tags}
            if isinstance(tags, Mapping)
            else None
        )
    return UnreadableServer(
        hashlib.sha256(repr(row).encode("utf-8", "replace")).hexdigest(), why, texts
    )


def _text(value: Any) -> str | None:
    """Return a text, or a number as written."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# -- errors


class CherryErrorRow(msgspec.Struct, frozen=True):
    """statuses: empty for all. words: a pattern that the message must contain; empty for any.
    orders: only for purchases."""

    cls: type[ProviderError]
    statuses: range | frozenset[int] = frozenset()
    words: str = ""
    orders: bool = False

    def fits(self, status: int, text: str, *, order: bool) -> bool:
        """Whether this row matches the response."""
        if (self.statuses and status not in self.statuses) or (self.orders and not order):
            return False
        return not self.words or re.search(self.words, text, re.IGNORECASE) is not None


_MONEY = r"\b(credits?|balance|funds|quotas?|limits?)\b"
_GOODS = r"\b(plans?|regions?|stock)\b"
# The first matching row decides; without one, the status does.
TABLE: tuple[CherryErrorRow, ...] = (
    CherryErrorRow(Unauthorized, frozenset({401, 403})),
    CherryErrorRow(Throttled, frozenset({429})),
    CherryErrorRow(Transient, range(500, 600)),
    CherryErrorRow(QuotaExceeded, frozenset({402})),
    CherryErrorRow(QuotaExceeded, range(400, 500), _MONEY, orders=True),
    CherryErrorRow(OutOfStock, frozenset({400, 404}), _GOODS, orders=True),
)
# Parts of an order that must not appear in an error: cloud-init in base64, and a bootstrap token.
_SENT = re.compile(r"[A-Za-z0-9+/=\\]{60,}|\b[a-z0-9]{6}\.[a-z0-9]{16}\b")


def error_for(response: VendorResponse) -> ProviderError:
    """Return the error of a response with status 300 or above: `METHOD host/path: status message`.
    The message is the vendor's `message`, then `errors`, then `error`; any other body is of unknown
    origin and is only described."""
    refusal = _refusal(response) or CherryRefusal()
    message = refusal.message or "; ".join(refusal.errors) or refusal.error
    text = " ".join(_SENT.sub("…", message).split())
    if not message and response.body.strip():
        text = f"({response.described})"
    order = response.call.startswith("POST ") and not response.call.endswith("/actions")
    row = next((row for row in TABLE if row.fits(response.status, text, order=order)), None)
    cls = row.cls if row else class_for(response.status)
    if not text and 300 <= response.status < 400:
        text = "it points to another host, to which the token is not sent"
    return cls(f"{response.call}: {response.status} {text}".rstrip(), code=str(response.status))


def denied(response: VendorResponse) -> ProviderError | None:
    """Return the error of a success whose body is an error instead of a server, by the code in it;
    None for a real success. It does not contain the vendor's message, because echoes of the token
    are removed only from errors with an error status."""
    refusal = _refusal(response)
    if refusal is None or (refusal.code < 400 and not (refusal.error or refusal.errors)):
        return None
    with suppress(ProviderError):
        read_one(response, CherryServer)
        return None
    code = refusal.code if 400 <= refusal.code < 600 else 0
    cls = type(error_for(msgspec.structs.replace(response, status=code))) if code else Unknown
    text = f"{response.call}: {response.status}, but its body is an error {code or ''}".rstrip()
    return cls(text, code=str(code or ""))


def _refusal(response: VendorResponse) -> CherryRefusal | None:
    try:
        return read_one(response, CherryRefusal)
    except ProviderError:
        return None
