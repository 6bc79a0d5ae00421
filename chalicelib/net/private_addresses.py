"""Tells servers of private networks from others: traffic to them leaves no cloud."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable

from chalicelib.net.forbidden_addresses import address_of


def addresses_of(name: str) -> frozenset[str]:
    """Return the addresses of a name. Raises OSError, ValueError."""
    return frozenset(str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))


def are_private(host: str, resolve: Callable[[str], Iterable[str]] = addresses_of) -> bool:
    """Return whether a host is a private address (RFC 1918, RFC 4193, loopback), or a name with no others."""
    address = address_of(host)
    if address is not None:
        return address.is_private
    try:
        found = [ipaddress.ip_address(each.partition("%")[0]) for each in resolve(host)]
    except (OSError, ValueError):
        return False
    return bool(found) and all(each.is_private for each in found)
