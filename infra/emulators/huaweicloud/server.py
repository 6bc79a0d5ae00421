"""The emulated project on a loopback port: one address for CCE, the compute service and the identity service.

with HuaweiServer(Cloud(clock)) as server:
    server.ring.add("AKIDEXAMPLE00000TEST", "secret")
    cluster = server.cloud.add_cluster("prod")
    pool = server.cloud.add_pool(cluster.uid, "pool-a", size=3)
    ...                                             # a client whose three endpoints are server.url
    assert [call.operation for call in server.log] == ["list-pools", …]
"""

from __future__ import annotations

from infra.emulators.certificates import Pair
from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.authentication import CceKeyRing
from infra.emulators.huaweicloud.dispatcher import CceDispatcher, CceLoggedRequest
from infra.emulators.huaweicloud.fault_injection import CceThrottle
from infra.emulators.vendor_common.fault_injection import VendorFaults
from infra.emulators.vendor_common.server import VendorServer


class HuaweiServer(VendorServer):
    """Serves a project. As a context manager it starts on entry and stops on exit; the cloud stays."""

    def __init__(self, cloud: CceCloud, *, tls: Pair | None = None) -> None:
        self.cloud, self.front = cloud, CceDispatcher(cloud)
        super().__init__(self.front, tls=tls)

    @property
    def ring(self) -> CceKeyRing:
        """Return the account's keys and agencies."""
        return self.front.ring

    @property
    def faults(self) -> VendorFaults:
        """Return the faults for the next calls."""
        return self.front.faults

    @property
    def throttle(self) -> CceThrottle:
        """Return the rate limits."""
        return self.front.throttle

    @property
    def log(self) -> list[CceLoggedRequest]:
        """Return the calls so far, oldest first."""
        return list(self.front.log)
