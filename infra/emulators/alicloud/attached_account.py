"""An emulated Alibaba Cloud account attached to a simulated cluster, for
LocalWorld and live emulations.

account = AlicloudAccount()
with LocalWorld(clouds=(account,)) as world:
    burst = account.cloud.add_group("burst", most=5)
    world.apply_policy(… providers: alicloud: <account.settings()> … nodeGroups: {provider:
    alicloud, id: burst.id})
"""

from __future__ import annotations

import json
from collections.abc import Callable

from infra.emulators.alicloud.account import REGION, AlicloudCloud
from infra.emulators.alicloud.iam import Policy
from infra.emulators.alicloud.models import AlicloudDurations
from infra.emulators.alicloud.node_registration import (
    AlicloudNodeRegistration,
    AlicloudRegistrationOptions,
)
from infra.emulators.alicloud.server import AlicloudServer
from infra.emulators.certificates import Pair
from infra.emulators.controllers.manager import Controller
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.server import AttachedAccount

SECRET_NAME = "outscaler/shared/alicloud"
KEY_ID, KEY_SECRET = "LTAI-LOCAL-KEY-000000001", "local-secret-of-the-emulated-account-1"


class AlicloudAccount(AttachedAccount[AlicloudCloud, AlicloudServer]):
    """One account with one key, served on loopback. policy: the permissions
    of the key, None for all.

    `cloud` and `server` exist once the account is attached to a clock.
    """

    def __init__(
        self,
        *,
        times: AlicloudDurations | None = None,
        ways: AlicloudRegistrationOptions | None = None,
        tls: Pair | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._times, self._ways, self._tls, self._policy = times, ways, tls, policy

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Create the account on that clock. Returns the controller that makes its
        instances Nodes of that cluster."""
        self._cloud = AlicloudCloud(clock, times=self._times)
        self._server = AlicloudServer(self._cloud, tls=self._tls)
        self._server.ring.add(KEY_ID, KEY_SECRET, self._policy)
        return AlicloudNodeRegistration(self._cloud, cluster, self._ways)

    def secret(self, key: str = KEY_ID) -> str:
        """Return the text of the secret that `settings` names."""
        return json.dumps(
            {"accessKeyId": key, "accessKeySecret": self.server.ring.keys[key].secret}
        )

    def secrets(self) -> dict[str, str]:
        """Return that secret by its name."""
        return {SECRET_NAME: self.secret()}

    def settings(self) -> dict[str, str]:
        """Return the policy's section `providers.alicloud` for this account."""
        url = self.server.url
        return {
            "region": REGION,
            "credentialsSecret": SECRET_NAME,
            "essEndpoint": url,
            "ecsEndpoint": url,
            "stsEndpoint": url,
            "vpcEndpoint": url,
        }
