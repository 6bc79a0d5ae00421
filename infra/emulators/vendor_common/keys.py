"""What accounts of emulated vendors consist of: access keys, long-lived ones and those of sessions,
and an agenda of events that are due at a time.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

_Permissions = TypeVar("_Permissions")


@dataclass(slots=True)
class VendorKey(Generic[_Permissions]):
    """An access key, or the key of a session if it has a token. permissions: None for all. expires:
    epoch seconds, the end of a session. active: not revoked."""

    id: str
    secret: str
    permissions: _Permissions | None = None
    token: str = ""
    expires: float = float("inf")
    active: bool = True


class SessionTexts(msgspec.Struct, frozen=True):
    """The texts of a session's key, with `{}` for its number."""

    id: str
    secret: str
    token: str


class VendorKeyRing(Generic[_Permissions]):
    """All keys of an account. sessions: texts of their keys, None for a vendor without sessions."""

    def __init__(self, sessions: SessionTexts | None = None) -> None:
        self.keys: dict[str, VendorKey[_Permissions]] = {}
        self._sessions, self._count = sessions, 0

    def add(
        self, id_: str, secret: str, permissions: _Permissions | None = None
    ) -> VendorKey[_Permissions]:
        return self._keep(VendorKey(id_, secret, permissions))

    def session(self, permissions: _Permissions | None, expires: float) -> VendorKey[_Permissions]:
        assert self._sessions is not None, "a vendor with sessions"
        self._count += 1
        number, texts = f"{self._count:06d}", self._sessions
        id_, secret, token = (text.format(number) for text in (texts.id, texts.secret, texts.token))
        return self._keep(VendorKey(id_, secret, permissions, token, expires))

    def secrets(self) -> list[str]:
        return [text for key in self.keys.values() for text in (key.secret, key.token) if text]

    def _keep(self, key: VendorKey[_Permissions]) -> VendorKey[_Permissions]:
        self.keys[key.id] = key
        return key


_Account = TypeVar("_Account")


class Agenda(Generic[_Account]):
    """Future events of an account."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[_Account, str, float], None], str]] = []
        self._numbers = itertools.count()

    def plan(self, at: float, play: Callable[[_Account, str, float], None], subject: str) -> None:
        """Schedule an event. at: epoch seconds. subject: the id that the event is about."""
        heapq.heappush(self._events, (at, next(self._numbers), play, subject))

    def play_due(self, account: _Account, now: float) -> None:
        """Play and remove each event that is due, at its own time. An event may add others."""
        while self._events and self._events[0][0] <= now:
            at, _, play, subject = heapq.heappop(self._events)
            play(account, subject, at)
