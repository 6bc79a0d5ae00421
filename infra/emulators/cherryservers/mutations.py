"""Parses requests to create or change a server as the vendor would, or refuses them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from infra.emulators.cherryservers.errors import bad
from infra.emulators.cherryservers.models import Order

_HOSTNAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?", re.ASCII)


def order(body: Mapping[str, Any]) -> Order:
    """Parse the body of a creation. It accepts plan_id and numbers as text, which other clients of the vendor send."""
    return Order(
        plan=_name(body.get("plan") or body.get("plan_id"), "plan"),
        region=_name(body.get("region"), "region"),
        hostname=hostname(body.get("hostname", "")),
        image=_text(body.get("image", ""), "image"),
        ssh_keys=_numbers(body.get("ssh_keys")),
        user_data=_user_data(body.get("user_data", "")),
        tags=string_map(body.get("tags") or {}, "tags"),
        spot=_flag(body.get("spot_market", False)),
        os_partition_size=_whole(body.get("os_partition_size", 0), "os_partition_size"),
    )


def project_of(body: Mapping[str, Any], default: int) -> int:
    """Return the project in the body. Raises Refused if it is not a number."""
    return _whole(body.get("project_id", default), "project_id")


def hostname(value: object) -> str:
    """Parse a hostname, which may be empty."""
    text = _text(value, "hostname")
    if text and not _HOSTNAME.fullmatch(text):
        raise bad("Bad request: hostname is not valid.")
    return text


def string_map(value: object, name: str) -> dict[str, str]:
    """Parse tags."""
    if not isinstance(value, dict) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise bad(f"Bad request: {name} must be an object of strings.")
    return dict(value)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise bad(f"Bad request: {name} must be a string.")
    return value


def _name(value: object, name: str) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value or "", name)
    if not text:
        raise bad(f"Bad request: {name} is required.")
    return text


def _whole(value: object, name: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad(f"Bad request: {name} must be a number.")
    return value


def _numbers(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise bad("Bad request: ssh_keys must be a list.")
    return tuple(_whole(each, "ssh_keys") for each in value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool | int):
        raise bad("Bad request: spot_market must be a boolean.")
    return bool(value)


def _user_data(value: object) -> str:
    text = _text(value, "user_data")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise bad("Bad request: user_data must be base64.") from None
    return text
