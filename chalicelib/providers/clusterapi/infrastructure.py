"""Reads the capacity of a new machine from its infrastructure object.

A machine template may carry the capacity of its machines in its status (Cluster API provider contract). It is read only
if no other source has the same information, one object at a time. Any failure means "no capacity from there": a missing
permission or a slow API server must neither delay a pass nor hide a group.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.providers.clusterapi.annotations import is_domain, is_qualified_name
from chalicelib.providers.clusterapi.models import CapiResource, InfrastructureReference
from chalicelib.providers.clusterapi.settings import ARCHITECTURES
from chalicelib.providers.kube_protocol import KubeApi

# Seconds of waiting that one pass may spend here. A prompt response does not count, otherwise a large fleet would
# use up the time.
_PATIENCE, _PROMPT = 2.0, 0.1
_LONGEST_ANSWER = 1.0
_VERSION = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?\Z")

T = TypeVar("T")


class Infrastructure(msgspec.Struct, frozen=True):
    """The data of one infrastructure object about its machines. capacity: cpu in millicores, memory and storage in
    bytes, the rest in pieces, without zeros. architecture, system: empty if missing or invalid. problem: why there
    is no capacity, empty if none was expected."""

    capacity: dict[str, int] = {}
    architecture: str = ""
    system: str = ""
    problem: str = ""
    warnings: tuple[str, ...] = ()


Infra = Callable[[str, CapiResource], Infrastructure]


def no_infrastructure(kind: str, resource: CapiResource) -> Infrastructure:
    """An `infra` without any data, for use if no infrastructure object can be read."""
    del kind, resource
    return Infrastructure()


class _Patient(Protocol):
    """The cluster's client with a time limit per call."""

    def request(self, method: str, path: str, *, timeout: tuple[float, float], attempts: int) -> bytes:
        """Send one request and return the response body; timeout: (connect, read) in seconds, per attempt."""


class _NoAnswer(OutscalerError):
    """A request without a usable response; its text names request and reason. status: HTTP's, 0 without a response."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class _Version(msgspec.Struct, frozen=True, gc=False):
    version: str = ""


class _InfrastructureGroup(msgspec.Struct, frozen=True):
    versions: list[_Version] | None = None


class _Served(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    kind: str = ""


class _ServedList(msgspec.Struct, frozen=True):
    resources: list[_Served] | None = None


class InfrastructureReader:
    """Reads infrastructure objects for one pass; data of a whole group, version or kind is requested once. kube: the
    management cluster's client, with `timeout=(connect, read)`. now: seconds, of which only differences count. After
    two seconds of waiting in total no further request is sent."""

    def __init__(self, kube: KubeApi, now: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._now = cast(_Patient, kube), now
        self._left = _PATIENCE
        self._known: dict[str, bytes | _NoAnswer] = {}
        self._closed: dict[str, _NoAnswer] = {}

    def of(self, kind: str, resource: CapiResource) -> Infrastructure:
        """Return the data of the object behind spec.template.spec.infrastructureRef, in the resource's own namespace.
        Never raises. kind: the resource's."""
        del kind  # machine templates and infrastructure pools have the same contract
        template = resource.spec.template
        reference = template.spec.infrastructure_ref if template and template.spec else None
        if reference is None:
            return Infrastructure()
        try:
            where, path = self._place(reference, resource.metadata.namespace)
            return read_status(self._once(path), where)
        except _NoAnswer as nothing:
            return Infrastructure(problem=str(nothing))

    def _place(self, reference: InfrastructureReference, namespace: str) -> tuple[str, str]:
        """Return the object's name for messages, and its path. References of v1beta1 name a version, those of v1beta2 a
        group."""
        group, _, version = reference.api_version.rpartition("/")
        group = group or reference.api_group
        for field, value, good in (
            ("kind", reference.kind, reference.kind.isalnum()),
            ("name", reference.name, is_domain(reference.name)),
            ("apiGroup", group, is_domain(group)),
        ):
            if not good:
                raise _NoAnswer(f"spec.template.spec.infrastructureRef has no usable {field}: {value!r}")
        where = f"{reference.kind} {namespace}/{reference.name}"
        if reference.api_version:
            plural = self._plural(group, version, reference.kind)
            if not plural:
                raise _NoAnswer(f"{where}: the cluster serves no such kind in {reference.api_version}")
            return where, f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{reference.name}"
        for each in self._decoded(f"/apis/{group}", _InfrastructureGroup).versions or ():
            if plural := self._plural(group, each.version, reference.kind):
                return where, f"/apis/{group}/{each.version}/namespaces/{namespace}/{plural}/{reference.name}"
        raise _NoAnswer(f"{where}: the cluster serves no such kind in {group}")

    def _plural(self, group: str, version: str, kind: str) -> str:
        """Return the plural name under which a version serves a kind, according to the server; empty if it does not."""
        if not _VERSION.match(version):
            return ""
        served = self._decoded(f"/apis/{group}/{version}", _ServedList).resources or ()
        return next((each.name for each in served if each.kind == kind and is_domain(each.name)), "")

    def _decoded(self, path: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self._once(path), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _NoAnswer(f"{path}: the API server's answer cannot be read") from None

    def _once(self, path: str) -> bytes:
        """Return a response, or why there is none, requested once per pass. A refusal applies to all objects of the
        same kind."""
        beside = path.rpartition("/")[0]
        found = self._closed.get(beside) or self._known.get(path)
        if found is None:
            found = self._known[path] = self._asked(path)
            if isinstance(found, _NoAnswer) and found.status == 403:
                self._closed[beside] = found
        if isinstance(found, _NoAnswer):
            raise found
        return found

    def _asked(self, path: str) -> bytes | _NoAnswer:
        if self._left <= 0:
            return _NoAnswer(f"{path} was not asked for: the API server was too slow before")
        started, limit = self._now(), min(_LONGEST_ANSWER, self._left)
        try:
            return self._kube.request("GET", path, timeout=(limit, limit), attempts=1)
        except OutscalerError as error:
            return _NoAnswer(f"GET {path}: {error}", int(getattr(error, "status", 0) or 0))
        finally:
            self._left -= max(0.0, self._now() - started - _PROMPT)


_SYSTEM = re.compile(r"[a-z0-9]{1,63}\Z")
# Maximum warnings per object; further ones would add no information.
_MOST_WARNINGS = 5


def read_status(body: bytes, where: str) -> Infrastructure:
    """Read status.capacity and status.nodeInfo of an object as the API sent it; never raises. where: its name in
    texts."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Infrastructure(problem=f"{where} cannot be read: the answer is not the JSON of an object")
    status = _part(found, "status")
    amounts, refused = _capacity(_part(status, "capacity"))
    node_info = _part(status, "nodeInfo")
    architecture, system = node_info.get("architecture"), node_info.get("operatingSystem")
    return Infrastructure(
        capacity=amounts,
        architecture=architecture if architecture in ARCHITECTURES else "",
        system=system if isinstance(system, str) and _SYSTEM.match(system) else "",
        problem="" if amounts else f"{where} has no status.capacity",
        warnings=tuple(f"{where}: status.capacity {entry}" for entry in refused[:_MOST_WARNINGS]),
    )


def _part(of: Any, key: str) -> dict[str, Any]:
    """Return a nested object; empty if it is missing or of another type."""
    part = of.get(key) if isinstance(of, dict) else None
    return part if isinstance(part, dict) else {}


def _capacity(given: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Return the valid amounts, and a short description of each invalid one."""
    amounts: dict[str, int] = {}
    refused = []
    for name, raw in given.items():
        try:
            amounts[name] = _amount(name, raw)
        except BadInput as bad:
            refused.append(f"{name[:80]!r} was left out: {bad.problem[:80]}")
    return {name: amount for name, amount in amounts.items() if amount}, refused


def _amount(name: str, raw: object) -> int:
    if not is_qualified_name(name):
        raise BadInput(name, "that is not the name of a resource")
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise BadInput(name, "it is neither a whole number nor a quantity")
    return parse_amount(name, quantity_text(raw))
