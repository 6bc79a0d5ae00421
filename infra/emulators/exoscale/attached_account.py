"""An emulated Exoscale zone attached to a simulated cluster, for LocalWorld and live emulations.

account = ExoscaleAccount()
with LocalWorld(clouds=(account,)) as world:
    cluster = account.zone.add_cluster("prod")
    web = account.zone.add_nodepool(cluster.id, "web")
    world.apply_policy(… providers: exoscale: <account.settings()> … nodeGroups: {provider: exoscale, id: web.id})
"""

from __future__ import annotations

import json
from collections.abc import Callable

from infra.emulators.certificates import Pair
from infra.emulators.controllers.manager import Controller
from infra.emulators.exoscale.account import ZONE, Zone
from infra.emulators.exoscale.models import ExoscaleDurations
from infra.emulators.exoscale.node_registration import ExoscaleNodeRegistration, ExoscaleRegistrationOptions
from infra.emulators.exoscale.server import ExoscaleServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.attached_account import AttachedAccount

SECRET_NAME = "outscaler/shared/exoscale"
KEY, KEY_SECRET = "EXO-EXAMPLE-LOCAL-KEY-0001", "example-secret-of-the-emulated-zone-1"


class ExoscaleAccount(AttachedAccount[Zone, ExoscaleServer]):
    """One zone with one key, served on loopback. operations: those that the key's role allows, None for all.

    `zone` and `server` exist once the account is attached to a clock.
    """

    def __init__(
        self,
        *,
        times: ExoscaleDurations | None = None,
        ways: ExoscaleRegistrationOptions | None = None,
        tls: Pair | None = None,
        operations: frozenset[str] | None = None,
    ) -> None:
        self._times, self._ways, self._tls, self._operations = times, ways, tls, operations

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Create the zone on that clock. Returns the controller that makes its instances Nodes of that cluster."""
        self._cloud = Zone(clock, times=self._times)
        self._server = ExoscaleServer(self._cloud, tls=self._tls)
        self._server.ring.add(KEY, KEY_SECRET, self._operations)
        return ExoscaleNodeRegistration(self._cloud, cluster, self._ways)

    @property
    def zone(self) -> Zone:
        """Return the zone. AssertionError before it is attached."""
        return self.cloud

    def secret(self, key: str = KEY) -> str:
        """Return the text of the secret that `settings` names."""
        return json.dumps({"apiKey": key, "apiSecret": self.server.ring.keys[key].secret})

    def secrets(self) -> dict[str, str]:
        """Return that secret by its name."""
        return {SECRET_NAME: self.secret()}

    def settings(self) -> dict[str, str]:
        """Return the policy's section `providers.exoscale` for this zone."""
        return {"zone": ZONE, "credentialsSecret": SECRET_NAME, "endpoint": self.server.root}
