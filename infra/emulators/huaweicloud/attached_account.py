"""An emulated Huawei Cloud project attached to a simulated cluster, for
LocalWorld and live emulations.

account = HuaweiAccount()
with LocalWorld(clouds=(account,)) as world:
    web = account.cloud.add_pool(account.cluster.uid, "web")
    world.apply_policy(… providers: huaweicloud: <account.settings()> …
                         nodeGroups: {provider: huaweicloud, id: web.uid})
"""

from __future__ import annotations

import json
from collections.abc import Callable

from infra.emulators.certificates import Pair
from infra.emulators.controllers.manager import Controller
from infra.emulators.huaweicloud.account import REGION, CceCloud
from infra.emulators.huaweicloud.models import CceCluster, CceDurations
from infra.emulators.huaweicloud.node_registration import (
    CceNodeRegistration,
    CceRegistrationOptions,
)
from infra.emulators.huaweicloud.server import HuaweiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.server import AttachedAccount

SECRET_NAME = "outscaler/shared/huaweicloud"
KEY, KEY_SECRET = "AKIDEXAMPLE00000LOCAL", "SKEXAMPLEsecretkeyoftheemulatedproject01"
CLUSTER = "prod"


class HuaweiAccount(AttachedAccount[CceCloud, HuaweiServer]):
    """One project with one key and one CCE cluster, served on loopback. actions: permissions
    of the key, None for all.

    `cloud`, `cluster` and `server` exist once the account is attached to a clock.
    """

    def __init__(
        self,
        *,
        times: CceDurations | None = None,
        ways: CceRegistrationOptions | None = None,
        tls: Pair | None = None,
        actions: frozenset[str] | None = None,
    ) -> None:
        self._times, self._ways, self._tls, self._actions = times, ways, tls, actions

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Create the project on that clock. Returns the controller that makes its
        nodes Nodes of that cluster."""
        self._cloud = CceCloud(clock, times=self._times)
        held = self._cloud.add_cluster(CLUSTER)
        self._server = HuaweiServer(self._cloud, tls=self._tls)
        self._server.ring.add(KEY, KEY_SECRET, self._actions)
        return CceNodeRegistration(self._cloud, cluster, self._ways, cluster=held.uid)

    @property
    def cluster(self) -> CceCluster:
        """Return the CCE cluster that represents the simulated cluster."""
        return next(iter(self.cloud.clusters.values()))

    def secret(self, key: str = KEY) -> str:
        """Return the text of the secret that `settings` names."""
        return json.dumps({"accessKey": key, "secretKey": self.server.ring.keys[key].secret})

    def secrets(self) -> dict[str, str]:
        """Return that secret by its name."""
        return {SECRET_NAME: self.secret()}

    def settings(self) -> dict[str, str]:
        """Return the policy's section `providers.huaweicloud` for this project."""
        return {
            "region": REGION,
            "projectId": self.cloud.project,
            "clusterId": self.cluster.uid,
            "credentialsSecret": SECRET_NAME,
            "cceEndpoint": self.server.url,
            "ecsEndpoint": self.server.url,
            "iamEndpoint": self.server.url,
        }
