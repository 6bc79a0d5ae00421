"""Tells servers of private networks from others: traffic to them leaves no cloud."""

from __future__ import annotations

import ipaddress
import socket

from chalicelib.net.forbidden_addresses import address_of


def are_private(host: str) -> bool:
    """Return whether a host is a private address (RFC 1918, RFC 4193, loopback), or a name with no others."""
    address = address_of(host)
    if address is not None:
        return address.is_private
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        return bool(found) and all(ipaddress.ip_address(str(each).partition("%")[0]).is_private for each in found)
    except (OSError, ValueError):
        return False
