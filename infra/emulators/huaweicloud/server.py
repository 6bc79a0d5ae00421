"""The emulated project on a loopback port: one address for CCE, the compute service
and the identity service.

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
from infra.emulators.huaweicloud.dispatcher import CceDispatcher
from infra.emulators.vendor_common.dispatcher import LoggedOperation
from infra.emulators.vendor_common.server import VendorServer


class HuaweiServer(VendorServer[CceDispatcher, LoggedOperation]):
    """Serves a project. As a context manager it starts on entry and stops
    on exit; the cloud stays."""

    def __init__(
        self, cloud: CceCloud, *, tls: Pair | None = None, in_process: bool = False
    ) -> None:
        super().__init__(CceDispatcher(cloud), tls=tls, in_process=in_process)
        self.cloud = cloud

    @property
    def ring(self) -> CceKeyRing:
        """Return the account's keys and agencies."""
        return self.front.ring
