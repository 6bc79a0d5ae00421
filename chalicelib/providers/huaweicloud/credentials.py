"""Temporary keys of an agency, obtained with the long-lived key and used until ten minutes before their expiry.

They are kept in this process's memory only, never in a table. They are looked up by what they were made from, so a
changed key or agency never gets keys of the old one. Keys that the vendor refuses are replaced once in the life of a
provider object; a second refusal is final.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache

from chalicelib.policy.vendors.huaweicloud import Agency
from chalicelib.providers.credential_source import SecretSource, digest
from chalicelib.providers.errors import ProviderError, Throttled, Transient
from chalicelib.providers.huaweicloud.signing import CceCredential

EARLY = 600.0  # seconds before their expiry from which keys are replaced before anything is signed
_LEAST = 60.0  # minimum seconds for which keys are used, whatever expiry the vendor (or our clock) gives
_LAST_USE = 60.0  # seconds before their expiry until which old keys are used while IAM is unavailable
_AGAIN = 30.0  # seconds until the next attempt in that case
_MOST = 256  # maximum agencies of one process


class Sessions:
    """The temporary keys of a process. Thread-safe; if two threads both create some, the later are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[CceCredential, float]] = {}

    def get(self, name: str, now: float, make: Callable[[], CceCredential]) -> CceCredential:
        """Return the keys of that name, renewed before they expire.

        While IAM provides none, the old ones are used as long as they are valid, also after a permanent refusal,
        because an error here must not hide the result of a change that was sent with them. After that the error of
        `make` is raised.
        """
        with self._lock:
            old, look = self._kept.get(name, (None, 0.0))
        # a clock that went back does not extend their life
        if old is not None and old.obtained - _LAST_USE <= now < look:
            return old
        try:
            made = make()
        except ProviderError:
            if old is None or not old.obtained - _LAST_USE <= now < old.expires - _LAST_USE:
                raise
            return self._keep(name, old, now + _AGAIN)
        return self._keep(name, made, max(made.expires - EARLY, made.obtained + _LEAST))

    def drop(self, name: str, refused_credential: CceCredential) -> None:
        """Remove keys that the vendor refused, unless others have replaced them."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None and same(kept[0], refused_credential):
                del self._kept[name]

    def _keep(self, name: str, credential: CceCredential, look: float) -> CceCredential:
        with self._lock:
            if name not in self._kept and len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[name] = (credential, look)
        return credential


@lru_cache(maxsize=1)
def of_this_process() -> Sessions:
    """Return the store that all passes of one process share, so that IAM is not called each time."""
    return Sessions()


class Assumed(SecretSource[CceCredential]):
    """The keys of an agency, used instead of the long-lived key. keys: the long-lived one; grant: calls IAM."""

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
        """Return the keys to sign with now; raises ProviderError."""
        name = self._made_from()
        found = self._sessions.get(name, self._now(), self._grant)
        # The call of IAM may have replaced the long-lived key; the keys were then made from the new one.
        later = self._made_from()
        return found if later == name else self._sessions.get(later, self._now(), lambda: found)

    def renewed(self, refused_credential: CceCredential) -> bool:
        """Return whether the keys have changed since they were refused; raises as current does. Renews once per
        provider object."""
        with self._guard:
            if not same(self.current(), refused_credential):
                return True
            if self._again:
                return False
            self._again = True
            self._sessions.drop(self._made_from(), refused_credential)
            return not same(self.current(), refused_credential)

    def _made_from(self) -> str:
        """Return a key for the session that reveals nothing of what it is made from."""
        long, agency = self._keys.current(), self._agency
        parts = (self._url, agency.domain, agency.name, long.key.reveal(), long.secret.reveal(), long.token.reveal())
        return digest("\0".join(f"{len(part)}:{part}" for part in parts), 64)


def same(credential: CceCredential, other_credential: CceCredential) -> bool:
    """Whether both sign alike, regardless of when they were obtained."""
    return (credential.key, credential.secret, credential.token) == (
        other_credential.key,
        other_credential.secret,
        other_credential.token,
    )


def for_good(error: ProviderError) -> bool:
    """Whether waiting cannot resolve the error."""
    return not isinstance(error, Transient | Throttled)
