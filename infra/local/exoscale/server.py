"""The emulated Exoscale zone on a loopback port.

    with ExoscaleServer(Zone(clock)) as server:
        server.ring.add("EXO-EXAMPLE-1", "secret")
        pool = server.zone.add_pool("workers", size=3)
        ...                                             # a client with endpoint f"{server.url}/v2"
        assert [call.operation for call in server.log] == ["list-instance-pools", …]
"""

from __future__ import annotations

from infra.local.certificates import Pair
from infra.local.exoscale.cloud import Zone
from infra.local.exoscale.faults import Throttle
from infra.local.exoscale.front import Front, Logged
from infra.local.exoscale.gate import Ring
from infra.local.exoscale.routes import ROOT
from infra.local.vendor.faults import Faults
from infra.local.vendor.server import VendorServer


class ExoscaleServer(VendorServer):
    """Serves a zone. A context manager: started on entry, stopped on exit; the zone stays."""

    def __init__(self, zone: Zone, *, tls: Pair | None = None) -> None:
        self.zone, self.front = zone, Front(zone)
        super().__init__(self.front, tls=tls)

    @property
    def root(self) -> str:
        """What clients are given as endpoint."""
        return f"{self.url}{ROOT}"

    @property
    def ring(self) -> Ring:
        """The organisation's keys."""
        return self.front.ring

    @property
    def faults(self) -> Faults:
        """Faults for the calls to come."""
        return self.front.faults

    @property
    def throttle(self) -> Throttle:
        """The zone's rate limits."""
        return self.front.throttle

    @property
    def log(self) -> list[Logged]:
        """The calls so far, oldest first."""
        return list(self.front.log)
