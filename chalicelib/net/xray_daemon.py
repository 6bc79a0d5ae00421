"""Sends documents to the X-Ray daemon that Lambda runs beside a traced function.

A document is one datagram to an address on the same machine. Nothing waits for it, and a lost one
is only missing from a trace.
"""

from __future__ import annotations

import re
import socket

LONGEST = 60_000
"""Bytes of a document; a datagram has at most 65,507."""
_HEADER = b'{"format": "json", "version": 1}\n'
_ADDRESS = re.compile(r"(\d{1,3}(?:\.\d{1,3}){3}):(\d{1,5})\Z")


def send(address: str, document: bytes) -> None:
    """Send a document to the daemon at `IP:port`. Never raises, and sends nothing to an
    address of another form."""
    target = _ADDRESS.match(address)
    if target is None or len(document) > LONGEST:
        return
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
            daemon.settimeout(0.0)
            daemon.sendto(_HEADER + document, (target[1], int(target[2])))
    except (OSError, OverflowError):
        return
