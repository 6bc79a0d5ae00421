"""The emulated Exoscale zone on a loopback port.

with ExoscaleServer(Zone(clock)) as server:
    server.ring.add("EXO-EXAMPLE-1", "secret")
    pool = server.zone.add_pool("workers", size=3)
    ...                                             # a client with endpoint f"{server.url}/v2"
    assert [call.operation for call in server.log] == ["list-instance-pools", …]
"""

from __future__ import annotations

from infra.emulators.certificates import Pair
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.authentication import ExoscaleKeyRing
from infra.emulators.exoscale.dispatcher import ExoscaleDispatcher
from infra.emulators.exoscale.routes import ROOT
from infra.emulators.vendor_common.operation_dispatcher import LoggedOperation
from infra.emulators.vendor_common.server import VendorServer


class ExoscaleServer(VendorServer[ExoscaleDispatcher, LoggedOperation]):
    """Serves a zone. As a context manager it starts on entry and stops on exit; the zone stays."""

    def __init__(self, zone: Zone, *, tls: Pair | None = None, in_process: bool = False) -> None:
        super().__init__(ExoscaleDispatcher(zone), tls=tls, in_process=in_process)
        self.zone = zone

    @property
    def root(self) -> str:
        """Return the endpoint for clients."""
        return f"{self.url}{ROOT}"

    @property
    def ring(self) -> ExoscaleKeyRing:
        """Return the organisation's keys."""
        return self.front.ring
