"""An address of this machine that is no loopback address: functions that are hosted connect to no other."""

from __future__ import annotations

import ipaddress
import socket

_NOWHERE = "192.0.2.1"  # for documentation: no packet is sent, only a route is looked up


def address() -> str:
    """That address; "" where the machine has none, as without any network. Servers on it can be reached from outside,
    so what they serve must be worth nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_NOWHERE, 9))
        except OSError:
            return ""
        found = str(probe.getsockname()[0])
    parsed = ipaddress.ip_address(found)
    return "" if parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified else found
