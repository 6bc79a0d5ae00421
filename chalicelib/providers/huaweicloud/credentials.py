"""Temporary keys of an agency: made by the long key, used until ten minutes before their end (huaweicloud-cce.md B3).

They live in this process's memory only, never in a table, and are found again by what they were made from, so that a
changed key or agency is never answered with keys of the old one. Keys that the vendor refuses are made once more in the
life of a provider object; what is refused then is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache

from chalicelib.providers.credential_source import SecretSource, digest
from chalicelib.providers.errors import ProviderError, Throttled, Transient
from chalicelib.providers.huaweicloud.settings import Agency
from chalicelib.providers.huaweicloud.signing import CceCredential

EARLY = 600.0  # seconds before their end from which on keys are made anew before anything is signed
_LEAST = 60.0  # seconds for which keys are used at least, whatever end the vendor (or our clock) names
_LAST_USE = 60.0  # seconds before their end up to which old keys stand in while IAM gives no answer
_AGAIN = 30.0  # seconds until the next attempt in that case
_MOST = 256  # agencies of one process


class Sessions:
    """The temporary keys of a process. Thread-safe; two threads may both make some, and the later ones stay."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[CceCredential, float]] = {}

    def get(self, name: str, now: float, make: Callable[[], CceCredential]) -> CceCredential:
        """The keys of that name, made anew in good time.

        While IAM gives none, the old ones are used as long as they live, also where it refuses for good: an error here
        must not hide that of a change that was sent with them. After that the error of `make` is raised.
        """
        with self._lock:
            old, look = self._kept.get(name, (None, 0.0))
        if old is not None and old.obtained - _LAST_USE <= now < look:  # a clock that went back keeps nothing alive
            return old
        try:
            made = make()
        except ProviderError:
            if old is None or not old.obtained - _LAST_USE <= now < old.expires - _LAST_USE:
                raise
            return self._keep(name, old, now + _AGAIN)
        return self._keep(name, made, max(made.expires - EARLY, made.obtained + _LEAST))

    def drop(self, name: str, refused: CceCredential) -> None:
        """Forget keys that the vendor refused, unless others have taken their place."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None and same(kept[0], refused):
                del self._kept[name]

    def _keep(self, name: str, credential: CceCredential, look: float) -> CceCredential:
        with self._lock:
            if name not in self._kept and len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[name] = (credential, look)
        return credential


@lru_cache(maxsize=1)
def of_this_process() -> Sessions:
    """Shared by all passes of one function, so that IAM is not asked each time."""
    return Sessions()


class Assumed(SecretSource[CceCredential]):
    """The keys of an agency, in the place of the long key. keys: the long one; grant: asks IAM."""

    def __init__(
        self,
        keys: SecretSource[CceCredential],
        agency: Agency,
        url: str,
        grant: Callable[[], CceCredential],
        sessions: Sessions,
        now: Callable[[], float],
    ) -> None:
        self._keys, self._agency, self._url, self._grant = keys, agency, url, grant
        self._sessions, self._now = sessions, now
        self._again, self._guard = False, threading.Lock()

    def current(self) -> CceCredential:
        """The keys to sign with now; raises ProviderError."""
        name = self._made_from()
        found = self._sessions.get(name, self._now(), self._grant)
        # While IAM was asked, the long key may have turned out to be replaced: they were made from the new one then.
        later = self._made_from()
        return found if later == name else self._sessions.get(later, self._now(), lambda: found)

    def renewed(self, refused: CceCredential) -> bool:
        """Whether there are other keys by now; raises as current does. Once in the life of a provider object."""
        with self._guard:
            if not same(self.current(), refused):
                return True
            if self._again:
                return False
            self._again = True
            self._sessions.drop(self._made_from(), refused)
            return not same(self.current(), refused)

    def _made_from(self) -> str:
        """Shows nothing of what it is made from."""
        long, agency = self._keys.current(), self._agency
        parts = (self._url, agency.domain, agency.name, long.key.reveal(), long.secret.reveal(), long.token.reveal())
        return digest("\0".join(f"{len(part)}:{part}" for part in parts), 64)


def same(one: CceCredential, other: CceCredential) -> bool:
    """Whether both sign alike, whenever they were had."""
    return (one.key, one.secret, one.token) == (other.key, other.secret, other.token)


def for_good(error: ProviderError) -> bool:
    """Not a matter of waiting."""
    return not isinstance(error, Transient | Throttled)
