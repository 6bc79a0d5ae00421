"""Sources of the signing key, and its replacement when the vendor refuses it.

An access key may be rotated and a session may expire during a pass. In both cases the source is read once more and the
call is tried once more; a second refusal is final (Unauthorized). Sessions are kept in this process's memory only,
never in the table. They are looked up by what they were made from, so a changed key or role never gets a session of the
old one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import msgspec

from chalicelib.model.secret import Secret
from chalicelib.providers.credential_source import digest
from chalicelib.providers.errors import ProviderError, Throttled, Transient

LIFETIME = 3600.0  # requested session lifetime in seconds; every role allows an hour
_EARLY = 900.0  # seconds before the end at which a session is renewed, as in the vendor's own client …
_SHARE = 0.8  # … but not before this share of a short lifetime has passed
_LAST_USE = 60.0  # seconds before its end until which an old session is used while STS is unavailable
_AGAIN = 30.0  # seconds until the next attempt in that case
_MOST_SESSIONS = 256


class AlicloudCredential(msgspec.Struct, frozen=True):
    """A key and, for a session, its token and expiry. obtained, expires: epoch seconds."""

    key_id: Secret
    key_secret: Secret
    token: Secret = Secret("")
    obtained: float = 0.0
    expires: float = float("inf")

    def hidden_in(self, text: str) -> str:
        """Return the text with every part of the credential removed, in any encoding."""
        for secret in (self.token, self.key_secret, self.key_id):
            text = secret.hidden_in(text)
        return text


class AlicloudCredentialSource(Protocol):
    """A source of a credential. Both methods raise ProviderError."""

    def current(self) -> AlicloudCredential:
        """Return the credential to sign with now."""

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return a credential other than the given one, which the vendor refused; None if there is none."""


class ReadKey(Protocol):
    """Reads a key from its secret."""

    def __call__(self, *, fresh: bool = False) -> AlicloudCredential:
        """Return the key; fresh: bypass caches."""


class AlicloudAccessKeys:
    """A long-lived key that the operator keeps in a secret. read: returns a credential, with fresh=True bypassing
    caches."""

    def __init__(self, read: ReadKey) -> None:
        self._read, self._held = read, None

    _held: AlicloudCredential | None

    def current(self) -> AlicloudCredential:
        """Return the key as first read."""
        if self._held is None:
            self._held = self._read()
        return self._held

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return the key as it is now, if it was changed."""
        fresh = self._read(fresh=True)
        self._held = fresh
        return None if _same(fresh, refused_credential) else fresh


class Sessions:
    """The sessions of a process. Thread-safe; if two threads both create one, the later is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[AlicloudCredential, float]] = {}

    def get(self, key: str, now: float, make: Callable[[], AlicloudCredential]) -> AlicloudCredential:
        """Return the session made from what `key` identifies, renewed before it expires.

        While STS is unavailable, the old session is used as long as it is valid. Every other error of `make` is raised.
        """
        with self._lock:
            old, look = self._kept.get(key, (None, 0.0))
        if old is not None and old.obtained - _LAST_USE <= now < look:
            return old
        try:
            made = make()
        except (Transient, Throttled):
            if old is None or not old.obtained - _LAST_USE <= now < old.expires - _LAST_USE:
                raise
            return self._keep(key, old, now, now + _AGAIN)
        return self._keep(key, made, now, due(made))

    def drop(self, key: str, refused_credential: AlicloudCredential) -> None:
        """Remove a session that the vendor refused, unless another one has replaced it."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and _same(kept[0], refused_credential):
                del self._kept[key]

    def _keep(self, key: str, credential: AlicloudCredential, now: float, look: float) -> AlicloudCredential:
        with self._lock:
            if len(self._kept) >= _MOST_SESSIONS:
                self._kept = {each: kept for each, kept in self._kept.items() if kept[0].expires > now}
            if len(self._kept) >= _MOST_SESSIONS:
                self._kept.clear()
            self._kept[key] = (credential, look)
        return credential


@lru_cache(maxsize=1)
def of_this_process() -> Sessions:
    """Return the store that all passes of a process share. Each pass builds new providers and must not call STS each
    time."""
    return Sessions()


class Session:
    """A temporary credential. key: identifies what it is made from (made_from); make: calls STS or the metadata
    service."""

    def __init__(
        self, sessions: Sessions, key: str, make: Callable[[], AlicloudCredential], now: Callable[[], float]
    ) -> None:
        self._sessions, self._key, self._make, self._now = sessions, key, make, now

    def current(self) -> AlicloudCredential:
        """Return the session of this process, or a new one."""
        return self._sessions.get(self._key, self._now(), self._make)

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """Return a new session."""
        self._sessions.drop(self._key, refused_credential)
        fresh = self.current()
        return None if _same(fresh, refused_credential) else fresh


class ChosenCredentialSource:
    """The source that settings and secret select. It is resolved at first use, so building a provider makes no call."""

    def __init__(self, choose: Callable[[], AlicloudCredentialSource]) -> None:
        self._choose, self._source = choose, None

    _source: AlicloudCredentialSource | None

    def current(self) -> AlicloudCredential:
        """See Source."""
        if self._source is None:
            self._source = self._choose()
        return self._source.current()

    def renewed(self, refused_credential: AlicloudCredential) -> AlicloudCredential | None:
        """See Source."""
        return self._source.renewed(refused_credential) if self._source is not None else self.current()


def due(credential: AlicloudCredential) -> float:
    """Return when to renew: 15 minutes before the end, or after four fifths of a lifetime shorter than half an hour.

    The time is at least a minute after the session was obtained, whatever expiry the vendor names, so STS is not called
    for every request."""
    life = credential.expires - credential.obtained
    early = life - _EARLY
    return credential.obtained + max(early if early >= life / 2 else _SHARE * life, _LAST_USE)


def made_from(*parts: str) -> str:
    """Return a key for a session that reveals nothing of what it was made from."""
    return digest("\0".join(f"{len(part)}:{part}" for part in parts), 64)


def refused_for_good(error: ProviderError) -> bool:
    """Whether waiting cannot resolve the error."""
    return not isinstance(error, (Transient, Throttled))


def _same(credential: AlicloudCredential, other_credential: AlicloudCredential) -> bool:
    return (credential.key_id, credential.key_secret, credential.token) == (
        other_credential.key_id,
        other_credential.key_secret,
        other_credential.token,
    )
