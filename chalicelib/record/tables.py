"""Rows of the tables of node groups and nodes, made once for the page, `outscaler get` and the read routes.

A row joins what the last decision says (model/plan.py), what is remembered (model/memory.py), what the last pass saw
(model/overview.py) and what is under way. Instants are epoch seconds; JSON has RFC 3339 (views.as_json).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.model.reason import Reason
from chalicelib.record.views import Instant


class Tone(StrEnum):
    """How urgent a status is. Every status has a word, too, so that none depends on a colour."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    BAD = "bad"


class GroupStatus(msgspec.Struct, frozen=True):
    """The state of a group: word is one of steady, growing, leaving, backing off, at its maximum, paused, unhealthy,
    not read. detail: a sentence without a time, "" where the word says it all. since, until: 0.0 for none. usually: the
    median of the seconds that its latest growths took, 0.0: unknown."""

    word: str
    tone: Tone
    detail: str = ""
    since: Instant = Instant(0.0)
    until: Instant = Instant(0.0)
    usually: float = 0.0


class GroupRow(msgspec.Struct, frozen=True, rename="camel"):
    """A node group. group: the id, a detail for people; name: what they call it. provider: the key of the policy;
    provider_title: for people, such as Alibaba ESS. zone, machine: "" where unknown. price: per hour and node. cpu,
    memory: percent of allocatable that pods request, None where the group has no ready node or it is not known."""

    group: str
    name: str
    provider: str
    provider_title: str
    zone: str
    machine: str
    price: float | None
    currency: str
    ready: int
    coming: int
    target: int
    min: int
    max: int
    cpu: int | None
    memory: int | None
    status: GroupStatus


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """A node. group_name: what people call its group, "" for none. decision, reason, pod, evict: see views.NodeView."""

    node: str
    group: str
    group_name: str
    machine: str
    zone: str
    created: Instant
    cpu: int | None
    memory: int | None
    pods: int | None
    decision: str
    reason: Reason | None
    pod: str
    evict: tuple[str, ...]
