"""Runs a command in a network of its own whose only interface is the loopback one, for servers that
listen on all interfaces: nobody else can reach them.

    python -m infra.tools.loopback_only CMD…

It needs Linux and the command `unshare` of util-linux; a user who is not
root needs user namespaces.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence

LOOPBACK = "lo"
_UNSHARE = ("unshare", "--net", "--map-root-user")
_TEST_SECONDS = 10.0
_SET_FLAGS = 0x8914  # SIOCSIFFLAGS of linux/sockios.h
_UP = 0x1  # IFF_UP of linux/if.h


def is_alone() -> bool:
    """Return whether this process has no interface but loopback."""
    return [name for _, name in socket.if_nameindex()] == [LOOPBACK]


def can_be_alone() -> bool:
    """Return whether this user may make such a network here."""
    if shutil.which(_UNSHARE[0]) is None:
        return False
    tried = subprocess.run(
        [*_UNSHARE, "true"], capture_output=True, timeout=_TEST_SECONDS, check=False
    )
    return tried.returncode == 0


def alone(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` in such a network."""
    return [*_UNSHARE, sys.executable, "-m", "infra.tools.loopback_only", *command]


def _begin(command: Sequence[str]) -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", LOOPBACK.encode(), _UP))
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    _begin(sys.argv[1:])
