"""The emulated identity service: projects by region, and temporary keys for an agency."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from infra.emulators.huaweicloud.authentication import CceKey, CceKeyRing
from infra.emulators.huaweicloud.errors import CceRefusedError

Json = dict[str, Any]
_SHORTEST, _LONGEST, _USUAL = 900, 86400, 900


def projects(held: Mapping[str, str], name: str | None) -> Json:
    """Return the projects. held: project id -> region. name: None for all."""
    return {
        "links": {},
        "projects": [
            {"id": id_, "name": region, "enabled": True}
            for id_, region in held.items()
            if name in (None, region)
        ],
    }


def assume(ring: CceKeyRing, caller: CceKey, body: Mapping[str, Any], now: float) -> Json:
    """Return temporary keys. Raises Refused for an invalid body, or a caller that
    the agency does not trust."""
    try:
        identity = body["auth"]["identity"]
        asked = identity["assume_role"]
        methods, place = identity["methods"], (asked["domain_name"], asked["agency_name"])
    except (KeyError, TypeError):
        raise CceRefusedError(400, "IAM.0011", "Request body is invalid") from None
    seconds = asked.get("duration_seconds", _USUAL)
    if (
        methods != ["assume_role"]
        or not isinstance(seconds, int)
        or not _SHORTEST <= seconds <= _LONGEST
    ):
        raise CceRefusedError(
            400, "IAM.0011", f"duration_seconds must be {_SHORTEST} to {_LONGEST}"
        )
    agency = ring.agencies.get(place)
    if agency is None:
        raise CceRefusedError(404, "IAM.0004", f"Could not find agency {place[1]}")
    if caller.id not in agency.trusts:
        raise CceRefusedError(
            403, "IAM.0003", "Policy doesn't allow iam:tokens:assume to be performed"
        )
    made = ring.session(agency.actions, now + seconds)
    return {
        "credential": {
            "access": made.id,
            "secret": made.secret,
            "securitytoken": made.token,
            "expires_at": _time(made.expires),
        }
    }


def _time(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
