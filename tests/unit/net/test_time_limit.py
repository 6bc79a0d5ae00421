"""All requests of a step share one time, whatever a server does: slow bodies,
slow handshakes, retries.

The clock advances with each reading, and it is read before each wait on a socket, so nothing
here takes real seconds.
"""

from __future__ import annotations

import math

import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.credentials import KubeCredential
from chalicelib.cluster.errors import ClusterError
from chalicelib.model.policy_permissions import Deployment
from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context
from chalicelib.net.time_limit import time_left, time_limit
from chalicelib.providers.kit.errors import ProviderError
from chalicelib.providers.kit.http import Http, VendorRequest
from chalicelib.providers.kit.services import ProviderServices
from infra.emulators.tcp_servers import ByteScript, endless

STEP = 25.0
BODY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
WIDE = ExchangeBounds(connect=5.0, read=5.0, total=1e6, bytes=10**9)


class TickingClock:
    """Advances by a step with each reading."""

    def __init__(self, step: float = 1.0) -> None:
        self.now, self._step = 0.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


class _Login:
    """A fixed credential."""

    def __init__(self, server: str) -> None:
        self._credential = KubeCredential(server=server)

    def current(self) -> KubeCredential:
        return self._credential

    def renew(self) -> None:
        return


def _session(server: ByteScript) -> BoundedSession:
    made = BoundedSession()
    made.mount(server.url, BoundedAdapter(public_context))
    return made


def _dripping() -> list[bytes]:
    return [BODY, *[b"1\r\n \r\n"] * 100_000]


def test_slow_body_ends_with_the_time_of_the_step() -> None:
    clock = TickingClock()
    with ByteScript(_dripping) as server, time_limit(STEP, clock):
        session = _session(server)
        with pytest.raises(NoReply, match="Task"):
            exchange(session, Request("GET", server.url + "/x", {}), WIDE)
        session.close()
    assert clock.now < STEP + 10


def test_slow_handshake_ends_with_the_time_of_the_step() -> None:
    clock = TickingClock(STEP)
    with ByteScript(lambda: endless(b"\x16", 0.01), greets=True) as server, time_limit(STEP, clock):
        session = BoundedSession()
        session.mount("https://", BoundedAdapter(public_context))
        with pytest.raises(NoReply, match="Task"):
            exchange(session, Request("GET", f"https://{server.host}/x", {}), WIDE)
        session.close()


def test_request_after_the_time_of_the_step_is_not_sent() -> None:
    with ByteScript(_dripping) as server, time_limit(STEP, TickingClock(STEP)):
        with pytest.raises(NoReply, match="Task") as refused:
            exchange(_session(server), Request("POST", server.url + "/x", {}, body=b"{}"), WIDE)
        assert (refused.value.sent, server.connections) == (False, 0)


def test_reads_of_a_cluster_are_not_repeated_beyond_the_time_of_the_step() -> None:
    clock, pauses = TickingClock(), list[float]()
    with ByteScript(_dripping) as server:
        kube = KubeClient(
            _Login(server.url), sleep=pauses.append, jitter=lambda: 0.5, monotonic=lambda: 0.0
        )
        with time_limit(STEP, clock):
            for _ in range(20):  # a step of twenty requests
                with pytest.raises(
                    ClusterError, match="the time for all requests of this step was over"
                ):
                    kube.get("/api/v1/nodes/n")
        kube.close()
        assert (server.connections, pauses) == (1, [])


def test_reads_of_a_vendor_are_not_repeated_beyond_the_time_of_the_step() -> None:
    clock, pauses = TickingClock(), list[float]()
    with ByteScript(_dripping) as server:
        deployment = Deployment(loopback=True, endpoints=frozenset({server.host}))
        http = Http(
            vendor="cherryservers",
            services=ProviderServices(
                deployment=deployment, sleep=pauses.append, chance=lambda: 0.5
            ),
            clock=lambda: 0.0,
            monotonic=lambda: 0.0,
        )
        with time_limit(STEP, clock):
            for _ in range(20):
                with pytest.raises(ProviderError):
                    http.send(VendorRequest("GET", f"{server.url}/v1/x", safe=True))
        http.close()
        assert (server.connections, pauses) == (1, [])


@pytest.mark.parametrize(("outer", "inner", "left"), [(9.0, 5.0, 5.0), (5.0, 9.0, 5.0)])
def test_of_nested_limits_the_earlier_end_applies(outer: float, inner: float, left: float) -> None:
    def still() -> float:
        return 100.0

    with time_limit(outer, still):
        with time_limit(inner, still):
            assert time_left() == left
        assert time_left() == outer
    assert time_left() == math.inf
