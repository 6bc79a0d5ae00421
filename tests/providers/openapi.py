"""Compares the HTTP traffic of an emulated vendor with the OpenAPI document
that the vendor publishes.

An emulator and the client it was written for can share a mistake; the document is an independent
reference. The comparison is stricter than the document's schemas: a field that the document does
not name is an error too, because a misspelt name is the most easily overlooked mistake.

    document = Document(json, prefix="/v2")            # compiles what is used, once
    checker = Checker(document)
    server.front.watches.append(checker.watch)
    …
    assert not checker.problems
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from infra.emulators.vendor_common.http_messages import Answer, Incoming

Json = dict[str, Any]
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_METHODS = {"get", "put", "post", "delete", "patch"}
_MOST_TOLD = 5


class Operation:
    """One operation of a document, with its compiled validators."""

    def __init__(
        self, document: Document, template: str, found: Mapping[str, Any], shared: list[Json]
    ) -> None:
        self.id: str = found["operationId"]
        self._document = document
        self._names = re.findall(r"\{([^}]+)\}", template)
        given = [document.resolved(each) for each in [*shared, *found.get("parameters", [])]]
        self._path = {
            each["name"]: document.compiled(each["schema"])
            for each in given
            if each["in"] == "path"
        }
        self._query = {each["name"]: each for each in given if each["in"] == "query"}
        self._request = found.get("requestBody")
        self._responses: Mapping[str, Any] = found.get("responses", {})
        self._compiled: dict[str, Any] = {}

    def request(self, incoming: Incoming, values: tuple[str, ...]) -> Iterator[str]:
        """Returns the errors of a request."""
        for name, value in zip(self._names, values, strict=True):
            yield from _wrong(self._path[name], value, f"path {name}")
        pairs = parse_qsl(urlsplit(incoming.target).query, keep_blank_values=True)
        for name, value in pairs:
            if name not in self._query:
                yield f"query {name}: the document has none of that name"
                continue
            yield from _wrong(
                self._once(f"query {name}", self._query[name]["schema"]), value, f"query {name}"
            )
        for name in sorted(
            {name for name, each in self._query.items() if each.get("required")}
            - dict(pairs).keys()
        ):
            yield f"query {name}: is missing"
        yield from self._body(incoming)

    def _body(self, incoming: Incoming) -> Iterator[str]:
        if self._request is None:
            if incoming.body:
                yield "request: has a body, and the document knows none"
            return
        if not incoming.headers.get("content-type", "").startswith("application/json"):
            yield f"request: Content-Type {incoming.headers.get('content-type')!r}"
            return
        yield from self._judged(
            "request", self._request["content"]["application/json"]["schema"], incoming.body
        )

    def response(self, answer: Answer) -> Iterator[str]:
        """Returns the errors of a successful answer. The document does not describe refusals."""
        if not 200 <= answer.status < 300:
            return
        found = self._responses.get(str(answer.status))
        if found is None:
            yield f"response: the document knows no status {answer.status}"
            return
        yield from self._judged(
            f"response {answer.status}", found["content"]["application/json"]["schema"], answer.body
        )

    def _judged(self, where: str, schema: Json, body: bytes) -> Iterator[str]:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeError) as error:
            yield f"{where}: no JSON ({error})"
            return
        yield from _wrong(self._once(where, schema), value, where)

    def _once(self, where: str, schema: Json) -> Any:
        if where not in self._compiled:
            self._compiled[where] = self._document.compiled(schema)
        return self._compiled[where]


class Document:
    """An OpenAPI 3.0 document. prefix: what the server's URL adds to its paths. Immutable except
    for its cache of compiled validators, so that one instance can serve all tests of a process."""

    def __init__(self, document: Json, *, prefix: str = "") -> None:
        # slow to import, and used by tests only
        from openapi_schema_validator import OAS30Validator

        self._document, self._prefix, self._validator = document, prefix, OAS30Validator
        self._formats = _formats()
        self._operations: dict[tuple[str, str], Operation] = {}
        self._templates: dict[tuple[str, int], list[tuple[re.Pattern[str], str]]] = {}
        for path, methods in document["paths"].items():
            pattern = re.compile(re.sub(r"\\\{[^}]+?\\\}", "([^/:]*)", re.escape(prefix + path)))
            for method in sorted(methods.keys() & _METHODS):
                self._templates.setdefault((method.upper(), path.count("/")), []).append(
                    (pattern, path)
                )

    def find(self, method: str, path: str) -> tuple[Operation, tuple[str, ...]] | None:
        """Returns the operation of a request, and its path parameters."""
        for pattern, template in self._templates.get(
            (method, path.count("/") - self._prefix.count("/")), []
        ):
            found = pattern.fullmatch(path)
            if found is not None:
                return self._operation(method, template), found.groups()
        return None

    def _operation(self, method: str, path: str) -> Operation:
        if (method, path) not in self._operations:
            held = self._document["paths"][path]
            self._operations[method, path] = Operation(
                self, path, held[method.lower()], held.get("parameters", [])
            )
        return self._operations[method, path]

    def compiled(self, schema: Json) -> Any:
        """Returns a validator of a schema, strict about fields that it does not name."""
        return self._validator(self._inlined(schema), format_checker=self._formats)

    def resolved(self, node: Json) -> Json:
        """Returns the target of a reference, or the node itself."""
        while "$ref" in node:
            target: Any = self._document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def _inlined(self, schema: Json, *, strict: bool = True) -> Json:
        """Returns the schema without references, so that it is compiled once and needs no
        lookups. Parts of a composed schema (allOf and the like) do not name all fields, so
        they are taken as they are."""
        made = dict(self.resolved(schema))
        if "properties" in made:
            made["properties"] = {
                name: self._inlined(each) for name, each in made["properties"].items()
            }
            if strict:
                made.setdefault("additionalProperties", False)
        for name in ("items", "additionalProperties"):
            if isinstance(made.get(name), dict):
                made[name] = self._inlined(made[name])
        for name in ("allOf", "oneOf", "anyOf"):
            if name in made:
                made[name] = [self._inlined(each, strict=False) for each in made[name]]
        return made


class Checker:
    """Compares the traffic. problems: one text each, only the first of each kind; checked: the
    number of compared calls by operation."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._fine: set[tuple[str, str, bytes, bytes]] = set()
        self.problems: list[str] = []
        self.checked: dict[str, int] = {}

    def watch(self, incoming: Incoming, answer: Answer) -> None:
        """Checks one call: the request as received, the answer before injected faults change it."""
        found = self._document.find(incoming.method, incoming.path)
        if found is None:
            self._tell(f"{incoming.method} {incoming.path}: the document has no such operation")
            return
        operation, values = found
        self.checked[operation.id] = self.checked.get(operation.id, 0) + 1
        key = (
            incoming.method,
            incoming.target,
            incoming.body,
            answer.body if answer.status < 300 else b"",
        )
        if key in self._fine:
            return
        wrong = [*operation.request(incoming, values), *operation.response(answer)]
        for each in wrong:
            self._tell(f"{operation.id}: {each}")
        if not wrong:
            self._fine.add(key)

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _wrong(validator: Any, value: object, where: str) -> Iterator[str]:
    for number, error in enumerate(validator.iter_errors(value)):
        if number == _MOST_TOLD:
            yield f"{where}: and more"
            return
        yield f"{where} {error.json_path}: {error.message[:200]}"


def _formats() -> Any:
    """Checks uuid, date-time and ipv4; other formats are ignored."""
    from openapi_schema_validator import oas30_format_checker

    checker = type(oas30_format_checker)(formats=())
    for name, fits in (("uuid", _is_uuid), ("ipv4", _is_ipv4), ("date-time", _is_time)):
        checker.checks(name, raises=ValueError)(partial(_text_fits, fits))
    return checker


def _text_fits(fits: Callable[[str], bool], value: object) -> bool:
    """Accepts any value that is not text: the type check covers it."""
    return not isinstance(value, str) or fits(value)


def _is_uuid(value: str) -> bool:
    return _UUID.fullmatch(value) is not None


def _is_ipv4(value: str) -> bool:
    return ipaddress.IPv4Address(value) is not None


def _is_time(value: str) -> bool:
    return "T" in value and dt.datetime.fromisoformat(value).tzinfo is not None
