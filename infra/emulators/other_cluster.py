"""Finds a non-loopback address of this machine, because hosted functions connect to no loopback address."""

from __future__ import annotations

import ipaddress
import socket

_NOWHERE = "192.0.2.1"  # a documentation address: no packet is sent, only a route is looked up


def address() -> str:
    """Return that address, "" if the machine has none, e.g. without a network. Servers on it can be reached from
    outside, so they must serve nothing of value."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_NOWHERE, 9))
        except OSError:
            return ""
        found = str(probe.getsockname()[0])
    parsed = ipaddress.ip_address(found)
    return "" if parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified else found
