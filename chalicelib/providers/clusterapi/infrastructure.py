"""Reads the capacity of a new machine from its infrastructure object.

A machine template may carry the capacity of its machines in its status (Cluster API provider contract). It is read only
if no other source has the same information, one object at a time. Any failure means "no capacity from there": a missing
permission or a slow API server must neither delay a pass nor hide a group. The object belongs to another project and
its fields are optional, so all of them are validated: an invalid entry is skipped and does not affect the others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.quantity import parse_amount, quantity_text
from chalicelib.policy.vendors.clusterapi import ARCHITECTURES
from chalicelib.providers.clusterapi.annotations import is_domain, is_qualified_name
from chalicelib.providers.clusterapi.api import VERSION, ApiGroup, ServedList
from chalicelib.providers.clusterapi.models import CapiResource, InfrastructureReference
from chalicelib.providers.kube_protocol import KubeApi

# Seconds of waiting that one pass may spend here. A prompt response does not count, otherwise a large fleet would
# use up the time.
_PATIENCE, _PROMPT = 2.0, 0.1
_LONGEST_ANSWER = 1.0
_SYSTEM = re.compile(r"[a-z0-9]{1,63}\Z")
_MOST_WARNINGS = 5  # per object; further ones would add no information

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


Infra = Callable[[CapiResource], Infrastructure]


def no_infrastructure(_: CapiResource) -> Infrastructure:
    """An `infra` without any data, for use if no infrastructure object can be read."""
    return Infrastructure()


class _TimedClient(Protocol):
    """The cluster's client with a time limit per call."""

    def request(self, method: str, path: str, *, timeout: tuple[float, float], attempts: int) -> bytes:
        """Send one request and return the response body; timeout: (connect, read) in seconds, per attempt."""


class _NoAnswer(OutscalerError):
    """A request without a usable response; its text names request and reason. status: HTTP's, 0 without a response."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class InfrastructureReader:
    """Reads infrastructure objects for one pass; data of a whole group, version or kind is requested once. kube: the
    management cluster's client, with `timeout=(connect, read)`. now: seconds, of which only differences count. After
    two seconds of waiting in total no further request is sent."""

    def __init__(self, kube: KubeApi, now: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._now = cast(_TimedClient, kube), now
        self._left = _PATIENCE
        self._answers: dict[str, bytes | _NoAnswer] = {}
        self._refused: dict[str, _NoAnswer] = {}

    def of(self, resource: CapiResource) -> Infrastructure:
        """Return the data of the object behind spec.template.spec.infrastructureRef, in the resource's own namespace.
        Machine templates and infrastructure pools have the same contract. Never raises."""
        template = resource.spec.template
        reference = template.spec.infrastructure_ref if template and template.spec else None
        if reference is None:
            return Infrastructure()
        try:
            where, path = self._place(reference, resource.metadata.namespace)
            return read_status(self._answer(path), where)
        except _NoAnswer as problem:
            return Infrastructure(problem=str(problem))

    def _place(self, reference: InfrastructureReference, namespace: str) -> tuple[str, str]:
        """Return the object's name for messages, and its path. References of v1beta1 name a version, those of v1beta2 a
        group."""
        group, _, version = reference.api_version.rpartition("/")
        group = group or reference.api_group
        for field, value, usable in (
            ("kind", reference.kind, reference.kind.isalnum()),
            ("name", reference.name, is_domain(reference.name)),
            ("apiGroup", group, is_domain(group)),
        ):
            if not usable:
                raise _NoAnswer(f"spec.template.spec.infrastructureRef has no usable {field}: {value!r}")
        where, versions = f"{reference.kind} {namespace}/{reference.name}", [version]
        if not reference.api_version:
            versions = [each.version for each in self._decoded(f"/apis/{group}", ApiGroup).versions or ()]
        for candidate in filter(VERSION.match, versions):
            # the plural name under which a version serves a kind, according to the server
            for served in self._decoded(f"/apis/{group}/{candidate}", ServedList).resources or ():
                if served.kind == reference.kind and is_domain(served.name):
                    return where, f"/apis/{group}/{candidate}/namespaces/{namespace}/{served.name}/{reference.name}"
        raise _NoAnswer(f"{where}: the cluster serves no such kind in {reference.api_version or group}")

    def _decoded(self, path: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self._answer(path), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _NoAnswer(f"{path}: the API server's answer cannot be read") from None

    def _answer(self, path: str) -> bytes:
        """Return a response, or raise why there is none, requested once per pass. A refusal applies to all objects of
        the same kind."""
        folder = path.rpartition("/")[0]
        answer = self._refused.get(folder) or self._answers.get(path)
        if answer is None:
            answer = self._answers[path] = self._request(path)
            if isinstance(answer, _NoAnswer) and answer.status == 403:
                self._refused[folder] = answer
        if isinstance(answer, _NoAnswer):
            raise answer
        return answer

    def _request(self, path: str) -> bytes | _NoAnswer:
        if self._left <= 0:
            return _NoAnswer(f"{path} was not asked for: the API server was too slow before")
        started, limit = self._now(), min(_LONGEST_ANSWER, self._left)
        try:
            return self._kube.request("GET", path, timeout=(limit, limit), attempts=1)
        except OutscalerError as error:
            return _NoAnswer(f"GET {path}: {error}", int(getattr(error, "status", 0) or 0))
        finally:
            self._left -= max(0.0, self._now() - started - _PROMPT)


def read_status(body: bytes, where: str) -> Infrastructure:
    """Read status.capacity and status.nodeInfo of an object as the API sent it; never raises. where: its name in
    texts."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Infrastructure(problem=f"{where} cannot be read: the answer is not the JSON of an object")
    status = _part(document, "status")
    amounts: dict[str, int] = {}
    warnings = []
    for name, raw in _part(status, "capacity").items():
        try:
            amounts[name] = _amount(name, raw)
        except BadInput as bad:
            warnings.append(f"{where}: status.capacity {name[:80]!r} was left out: {bad.problem[:80]}")
    capacity = {name: amount for name, amount in amounts.items() if amount}
    node_info = _part(status, "nodeInfo")
    architecture, system = node_info.get("architecture"), node_info.get("operatingSystem")
    return Infrastructure(
        capacity=capacity,
        architecture=architecture if architecture in ARCHITECTURES else "",
        system=system if isinstance(system, str) and _SYSTEM.match(system) else "",
        problem="" if capacity else f"{where} has no status.capacity",
        warnings=tuple(warnings[:_MOST_WARNINGS]),
    )


def _part(document: Any, key: str) -> dict[str, Any]:
    """Return a nested object; empty if it is missing or of another type."""
    part = document.get(key) if isinstance(document, dict) else None
    return part if isinstance(part, dict) else {}


def _amount(name: str, raw: object) -> int:
    if not is_qualified_name(name):
        raise BadInput(name, "that is not the name of a resource")
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise BadInput(name, "it is neither a whole number nor a quantity")
    return parse_amount(name, quantity_text(raw))
