"""Servers below HTTP count each client that has connected, however late their own threads run."""

from __future__ import annotations

import socket

from infra.emulators.tcp_servers import ByteScript


def test_byte_script_counts_clients_that_left_before_its_thread_ran() -> None:
    server = ByteScript(lambda: [b"x"])
    address = ("127.0.0.1", int(server.host.rpartition(":")[2]))
    for _ in range(3):
        socket.create_connection(address).close()
    with server:
        pass
    assert server.connections == 3
