"""An emulated vendor behind the interceptor: each of its requests can be hit by a fault,
as those of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, Incoming, scripted
from infra.emulators.vendor_common.server import VendorServer
from tests.faults.fault_schedule import VENDOR, Io, Weather
from tests.faults.io_interceptor import IoInterceptor

BUSY = scripted(503, {"message": "the weather"})


class WatchedVendor:
    """gate: of the calling process. around: carries out a request."""

    def __init__(
        self,
        server: VendorServer[Any, Any],
        weather: Weather,
        gate: Callable[[], IoInterceptor | None],
        around: Callable[[Incoming, Callable[[], Answer]], Answer],
    ) -> None:
        self._server, self._weather, self._gate, self._around = server, weather, gate, around

    def answer(self, incoming: Incoming) -> Answer:
        """Answers a request, see VendorServer."""
        gate = self._gate()
        if gate is None:
            return self._server.answer(incoming)
        verb = action_of(incoming) or incoming.method
        io = Io(gate.function, VENDOR, verb, incoming.target, writes(incoming))

        def call() -> Answer:
            return self._around(incoming, lambda: self._server.answer(incoming))

        return gate.through(io, call, lambda: BUSY, lambda _: NO_ANSWER)


def action_of(incoming: Incoming) -> str:
    """The action of a request whose path does not say it, empty for others."""
    return incoming.headers.get("x-acs-action", "") or incoming.parameters().get("Action", "")


def writes(incoming: Incoming) -> bool:
    """Whether a request changes something."""
    action = action_of(incoming)
    return not action.startswith("Describe") if action else incoming.method != "GET"
