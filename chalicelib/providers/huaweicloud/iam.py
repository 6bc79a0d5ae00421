"""Requests to IAM: the temporary keys of an agency and the id of a region's project.

Every refusal by IAM is Unauthorized: a key, an agency or a project is wrong, and the operator must act. It must not be
mistaken for a response about a pool, where a 404 would mean that the pool is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.vendors.huaweicloud import PLACE, Agency
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import InvalidRequest, ProviderError, Unauthorized
from chalicelib.providers.http import VendorRequest
from chalicelib.providers.huaweicloud.credentials import for_good
from chalicelib.providers.huaweicloud.decoding import body_of
from chalicelib.providers.huaweicloud.provider_ids import is_project
from chalicelib.providers.huaweicloud.signing import CceCredential
from chalicelib.providers.rest_client import RestClient
from chalicelib.providers.services import Cache

_JSON = {"Content-Type": "application/json"}
_DAY = 86400.0
_SHOWN = 5


def granted(rest: RestClient[CceCredential], root: str, agency: Agency, now: float) -> CceCredential:
    """Return new keys of the agency, requested with the long-lived key that `rest` signs with.

    Repeating is safe. Raises Unauthorized, Transient, Throttled. If the expiry cannot be read, the requested lifetime
    is assumed; keys that end sooner are replaced when the vendor refuses them."""
    role = {"domain_name": agency.domain, "agency_name": agency.name, "duration_seconds": agency.seconds}
    body = {"auth": {"identity": {"methods": ["assume_role"], "assume_role": role}}}
    call = VendorRequest(
        "POST", f"{root}/v3.0/OS-CREDENTIAL/securitytokens", dict(_JSON), {}, msgspec.json.encode(body), safe=True
    )
    asked = f"agency {agency.name} of {agency.domain}"
    said = _for_a_person(asked, lambda: body_of(rest.send(call))).get("credential")
    texts = said if isinstance(said, dict) else {}
    parts = [texts.get(name) for name in ("access", "secret", "securitytoken")]
    if not all(isinstance(part, str) and part and part.isascii() and part.isprintable() for part in parts):
        raise Unauthorized(f"{asked}: the answer holds no credentials", code="NoCredentials")
    key, secret, token = (Secret(str(part)) for part in parts)
    return CceCredential(key, secret, token, obtained=now, expires=_end(texts.get("expires_at"), now + agency.seconds))


class Projects:
    """The project of a region: looked up by its name, cached for a day. key: as for the cache (cached.py)."""

    def __init__(
        self,
        rest: RestClient[CceCredential],
        root: str,
        region: str,
        *,
        cache: Cache,
        key: Callable[[], str],
        now: Callable[[], float],
    ) -> None:
        self._rest, self._root, self._region = rest, root, region
        self._kept = TtlCache(cache, key, str, now)
        self._held = ""

    def id(self) -> str:
        """Return the project's id, 32 hex digits.

        Raises InvalidRequest if there is none, or more than one to choose from; otherwise as granted."""
        if not self._held:
            found = self._kept.get([self._region]).get(self._region) or ""
            if not is_project(found):
                found = self._asked()
                self._kept.put({self._region: found}, known=_DAY, unknown=0.0)
            self._held = found
        return self._held

    def _asked(self) -> str:
        call = VendorRequest("GET", f"{self._root}/v3/projects", dict(_JSON), {"name": self._region}, safe=True)
        said = _for_a_person(f"the project of {self._region}", lambda: body_of(self._rest.send(call))).get("projects")
        projects = [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []
        usable = [
            each["id"]
            for each in projects
            if each.get("name") in (None, self._region)
            and each.get("enabled") is not False
            and isinstance(each.get("id"), str)
            and is_project(each["id"])
        ]
        if len(usable) == 1:
            return str(usable[0])
        named = f"{len(usable)} projects of that name ({', '.join(usable[:_SHOWN])})" if usable else "no project"
        raise InvalidRequest(
            f"{PLACE}.projectId: the region {self._region} has {named}; write its id there", code="Project"
        )


def _for_a_person(asked: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return ask()
    except ProviderError as error:
        cls = Unauthorized if for_good(error) else type(error)
        raise cls(
            f"{asked}: {error.message}", code=error.code, request_id=error.request_id, retry_after=error.retry_after
        ) from None


def _end(text: object, otherwise: float) -> float:
    try:
        return parse_time(text) if isinstance(text, str) else otherwise
    except BadInput:
        return otherwise
