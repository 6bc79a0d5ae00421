"""The emulated Alibaba Cloud on a loopback port: ESS, ECS, STS and the metadata
service, over HTTP or TLS.

with AlicloudServer(Cloud(clock)) as server:
    server.ring.add("LTAI-LOCAL", "secret")
    group = server.cloud.add_group("workers", size=3)
    ...                                             # a client with endpoint server.url
    assert [call.action for call in server.log] == ["DescribeScalingGroups", …]
"""

from __future__ import annotations

from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.dispatcher import AlicloudDispatcher, AlicloudLoggedRequest
from infra.emulators.alicloud.iam import AlicloudKeyRing
from infra.emulators.certificates import Pair
from infra.emulators.vendor_common.server import VendorServer


class AlicloudServer(VendorServer[AlicloudDispatcher, AlicloudLoggedRequest]):
    """Serves an account. As a context manager it starts on entry and stops on
    exit; the account stays."""

    def __init__(
        self, cloud: AlicloudCloud, *, tls: Pair | None = None, in_process: bool = False
    ) -> None:
        super().__init__(AlicloudDispatcher(cloud), tls=tls, in_process=in_process)
        self.cloud = cloud

    @property
    def ring(self) -> AlicloudKeyRing:
        """Return the account's keys, roles and identity tokens."""
        return self.front.ring
