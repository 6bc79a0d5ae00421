"""Authenticates requests: key or token, signature, time and permissions."""

from __future__ import annotations

import datetime as dt
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from infra.emulators.huaweicloud.errors import CceRefusedError
from infra.emulators.huaweicloud.signing import CceSignedClaim, claim, signature
from infra.emulators.vendor_common.http_messages import Incoming
from infra.emulators.vendor_common.keys import SessionTexts, VendorKey, VendorKeyRing

SKEW = 900.0
"""Maximum deviation of a client's clock in seconds."""
_MUST = frozenset({"host", "x-sdk-date"})
_DATE = re.compile(r"\d{8}T\d{6}Z")


CceKey = VendorKey[frozenset[str]]
"""A key; its permissions are patterns of a custom policy (`cce:nodepool:*`)."""


@dataclass(slots=True)
class Agency:
    """An agency that another account may assume. trusts: ids of access keys that may."""

    domain: str
    name: str
    trusts: frozenset[str]
    actions: frozenset[str] | None = None


class CceKeyRing(VendorKeyRing[frozenset[str]]):
    """All keys and agencies of the account. tokens: X-Auth-Token -> the key with its
    permissions."""

    def __init__(self) -> None:
        super().__init__(
            SessionTexts(
                "HSTEXAMPLE{}", "example-session-secret-{}", "ggpjbi1leGFtcGxlLXRva2Vu-{}=="
            )
        )
        self.agencies: dict[tuple[str, str], Agency] = {}
        self.tokens: dict[str, CceKey] = {}

    def add_agency(
        self, domain: str, name: str, *trusts: str, actions: frozenset[str] | None = None
    ) -> Agency:
        """Add an agency that these keys may assume."""
        made = self.agencies[domain, name] = Agency(domain, name, frozenset(trusts), actions)
        return made

    def secrets(self) -> list[str]:
        """Return every confidential text."""
        return [*super().secrets(), *self.tokens]


class CceAuthenticator:
    """Checks requests against a key ring and a clock."""

    def __init__(self, ring: CceKeyRing, clock: Callable[[], float]) -> None:
        self._ring, self._clock = ring, clock

    def admit(self, incoming: Incoming, action: str) -> CceKey:
        """Return the key that signed the request, or whose token it contains. Raises Refused with
        401, or with 403 without the permission."""
        token = incoming.headers.get("x-auth-token", "")
        key = self._by_token(token) if token else self._by_signature(incoming)
        if not may(key, action):
            raise CceRefusedError(
                403, "CCE.01403001", f"Forbidden: policy does not allow {action} to be performed"
            )
        return key

    def _by_token(self, token: str) -> CceKey:
        key = self._ring.tokens.get(token)
        if key is None or not key.active or key.expires <= self._clock():
            raise CceRefusedError(
                401,
                "APIGW.0301",
                "Incorrect IAM authentication information: token is invalid or expired",
            )
        return key

    def _by_signature(self, incoming: Incoming) -> CceKey:
        claimed = claim(incoming)
        if claimed is None:
            raise _incorrect("no authentication header")
        key = self._ring.keys.get(claimed.key)
        if key is None or not key.active:
            raise _incorrect(f"AK {claimed.key} not exist")
        _check_form(incoming, claimed, key)
        expected = signature(incoming, claimed.signed, key.secret)
        if not hmac.compare_digest(expected.encode(), claimed.signature.encode()):
            raise _incorrect("verify aksk signature fail")
        self._check_time(incoming.headers["x-sdk-date"])
        if key.expires <= self._clock():
            raise _incorrect("the security token has expired")
        return key

    def _check_time(self, told: str) -> None:
        at = dt.datetime.strptime(told, "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC).timestamp()
        if abs(at - self._clock()) > SKEW:
            raise CceRefusedError(
                401,
                "APIGW.0303",
                (
                    "Incorrect app authentication information: the request time is more than 15 "
                    "minutes from the server's"
                ),
            )


def may(key: CceKey, action: str) -> bool:
    """Return whether the key permits an action such as `cce:nodepool:list`; "" needs no
    permission."""
    return (
        not action
        or key.permissions is None
        or any(fnmatchcase(action, each) for each in key.permissions)
    )


def _check_form(incoming: Incoming, claimed: CceSignedClaim, key: CceKey) -> None:
    signed = claimed.signed
    if list(signed) != sorted(each.lower() for each in signed) or not set(signed) >= _MUST:
        raise _incorrect("SignedHeaders must be lower-case, sorted, and hold host and x-sdk-date")
    if not set(signed) <= incoming.headers.keys():
        raise _incorrect("a signed header is missing")
    if not _DATE.fullmatch(incoming.headers["x-sdk-date"]):
        raise _incorrect("x-sdk-date is no time")
    if incoming.headers.get("x-security-token", "") != key.token:
        raise _incorrect("the security token does not belong to the key")
    if key.token and "x-security-token" not in signed:
        raise _incorrect("the security token is not signed")


def _incorrect(why: str) -> CceRefusedError:
    return CceRefusedError(401, "APIGW.0301", f"Incorrect IAM authentication information: {why}")
