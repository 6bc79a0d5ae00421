"""Label and field selectors of list, watch and deletecollection, with the real
server's grammar and errors.

It is separate from chalicelib.model.selector on purpose, so that the simulated cluster does not
share errors with the program under test.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from infra.emulators.kube import status
from infra.emulators.kube.objects import KubeObject, dig

Labels = Mapping[str, str]

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+|\Z)")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z"
)
_OPERATORS = {
    "=": "in",
    "==": "in",
    "!=": "notin",
    "in": "in",
    "notin": "notin",
    ">": "gt",
    "<": "lt",
}
_SPECIAL = frozenset({"", "=", "==", "!=", "!", "(", ")", ",", "<", ">"})


class Requirement(msgspec.Struct, frozen=True):
    """key operator values; operator is one of in, notin, exists, absent, gt, lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        if value is None or not re.fullmatch(r"-?\d+", value):
            return False
        return (
            int(value) > int(self.values[0])
            if self.operator == "gt"
            else int(value) < int(self.values[0])
        )

    def __str__(self) -> str:
        match self.operator:
            case "in" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case "exists":
                return self.key
            case "absent":
                return f"!{self.key}"
        return f"{self.key}{'>' if self.operator == 'gt' else '<'}{self.values[0]}"


class _SelectorsParser:
    def __init__(self, text: str) -> None:
        self.tokens = [match.group(1) for match in _TOKEN.finditer(text)] or [""]
        self.at = 0

    @property
    def token(self) -> str:
        return self.tokens[min(self.at, len(self.tokens) - 1)]

    def take(self) -> str:
        token = self.token
        self.at += 1
        return token

    def refuse(self, expected: str) -> status.ApiError:
        return status.bad_request(f"found '{self.token}', expected: {expected}")

    def parse(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        if self.token == "":
            return ()
        if self.token in _SPECIAL - {"!"}:
            raise self.refuse("!, identifier, or 'end of string'")
        while True:
            found.append(self.requirement())
            if self.token == "":
                return tuple(found)
            if self.token != ",":
                raise self.refuse("',' or 'end of string'")
            self.at += 1
            if self.token in _SPECIAL - {"!"}:
                raise self.refuse("identifier after ','")

    def requirement(self) -> Requirement:
        absent = self.token == "!"
        self.at += absent
        if self.token in _SPECIAL:
            raise self.refuse("identifier")
        key = _checked_key(self.take())
        if absent or self.token in {"", ","}:
            return Requirement(key, "absent" if absent else "exists")
        operator = _OPERATORS.get(self.token)
        if operator is None:
            raise self.refuse("in, notin, =, ==, !=, gt, lt")
        many = self.take() in {"in", "notin"}
        values = self.values() if many else (self.exact(),)
        if operator in {"gt", "lt"} and not re.fullmatch(r"-?\d+", values[0]):
            raise status.bad_request(
                f"unable to parse requirement: values[0][{key}]: Invalid value: {values[0]!r}"
            )
        return Requirement(key, operator, tuple(_checked_value(key, value) for value in values))

    def exact(self) -> str:
        if self.token in {"", ","}:
            return ""
        if self.token in _SPECIAL:
            raise self.refuse("identifier")
        return self.take()

    def values(self) -> tuple[str, ...]:
        if self.token != "(":
            raise self.refuse("'('")
        self.at += 1
        found: list[str] = []
        while self.token != ")":
            if self.token == ",":
                found.append("")
            elif self.token in _SPECIAL:
                raise self.refuse("',', ')' or identifier")
            else:
                found.append(self.take())
            if self.token == ",":
                self.at += 1
            elif self.token != ")":
                raise self.refuse("',' or ')'")
        self.at += 1
        return tuple(sorted(found)) or ("",)


def _checked_key(key: str) -> str:
    if not _KEY.match(key):
        raise status.bad_request(
            f'unable to parse requirement: key: Invalid value: "{key}": name part must consist of '
            "alphanumeric "
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character "
            "(e.g. 'MyName',  or "
            "'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    return key


def _checked_value(key: str, value: str) -> str:
    if not _VALUE.match(value):
        raise status.bad_request(
            f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": a valid '
            "label must be an "
            "empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an "
            "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    return value


@functools.lru_cache(maxsize=1024)  # clients use the same selectors repeatedly
def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse `a=b,c in (d,e),!f` to requirements. Raises ApiError 400 with the real server's
    text."""
    return _SelectorsParser(text).parse()


def from_object(selector: Mapping[str, Any] | None) -> tuple[Requirement, ...] | None:
    """Convert a metav1.LabelSelector to requirements; None (matches nothing) for a missing one."""
    if selector is None:
        return None
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    found = [
        Requirement(key, "in", (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    found.extend(
        Requirement(each["key"], operators[each["operator"]], tuple(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    )
    return tuple(found)


def holds(requirements: tuple[Requirement, ...] | None, labels: Labels) -> bool:
    """Return whether labels satisfy all of them; None matches nothing, () everything."""
    return requirements is not None and all(each.holds(labels) for each in requirements)


_EVENT_FIELDS = {
    f"{name}.{field}": f"involvedObject.{field}"
    for name in ("involvedObject", "regarding")
    for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
} | {
    "reason": "reason",
    "type": "type",
    "source": "source.component",
    "reportingComponent": "reportingComponent",
    "reportingController": "reportingComponent",
}
# resource -> selectable field -> its path in the object
_FIELDS: dict[tuple[str, str], dict[str, str]] = {
    ("", "pods"): {
        field: field
        for field in (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        )
    },
    ("", "nodes"): {"spec.unschedulable": "spec.unschedulable"},
    ("", "events"): _EVENT_FIELDS,
    ("events.k8s.io", "events"): _EVENT_FIELDS,
    ("", "namespaces"): {"status.phase": "status.phase"},
    ("", "secrets"): {"type": "type"},
    ("apps", "replicasets"): {"status.replicas": "status.replicas"},
    ("batch", "jobs"): {"status.successful": "status.succeeded"},
}
_FALSE_IF_MISSING = frozenset({"spec.unschedulable", "spec.hostNetwork"})


def _field_value(obj: KubeObject, path: str) -> str:
    value = dig(obj, *path.split("."))
    if value is None:
        return "false" if path in _FALSE_IF_MISSING else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.lru_cache(maxsize=1024)
def parse_fields(text: str, group: str, plural: str) -> tuple[tuple[str, bool, str], ...]:
    """Parse `status.phase!=Failed,spec.nodeName=a` to (path, equal, value). Raises ApiError 400
    for an unsupported field."""
    known = {"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace"}
    known |= _FIELDS.get((group, plural), {})
    found: list[tuple[str, bool, str]] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = re.fullmatch(r"(.*?)(!=|==|=)(.*)", part)
        if match is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = match.groups()
        if field not in known:
            raise status.bad_request(f"field label not supported: {field}")
        found.append((known[field], operator != "!=", re.sub(r"\\(.)", r"\1", value)))
    return tuple(found)


class Selection(msgspec.Struct, frozen=True):
    """The parsed selectors of a list or watch."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def exactly(self, path: str) -> str | None:
        """Return the only value that a field may have, None if the selector does not fix it."""
        return next((value for each, equal, value in self.fields if each == path and equal), None)

    def wants(self, obj: KubeObject) -> bool:
        if self.labels and not holds(self.labels, obj["metadata"].get("labels") or {}):
            return False
        return all(
            (_field_value(obj, path) == value) == equal for path, equal, value in self.fields
        )


def selection(query: Mapping[str, str], group: str, plural: str) -> Selection:
    """Return the selectors of a request. Raises ApiError 400."""
    return Selection(
        parse_labels(query.get("labelSelector", "")),
        parse_fields(query.get("fieldSelector", ""), group, plural),
    )
