"""An emulated Cherry Servers account attached to a simulated cluster, for LocalWorld and live emulations.

account = CherryAccount()
with LocalWorld(clouds=(account,)) as world:
    world.apply_policy(… providers: cherryservers: <account.settings()> …
                       nodeGroups: {provider: cherryservers, id: workers, min: 0, max: 5})
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

from infra.emulators.certificates import Pair
from infra.emulators.cherryservers.account import PROJECT, CherryCloud
from infra.emulators.cherryservers.models import CherryDurations
from infra.emulators.cherryservers.node_registration import CherryNodeRegistration, CherryRegistrationOptions
from infra.emulators.cherryservers.server import CherryHttpServer
from infra.emulators.controllers.manager import Controller
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.attached_account import AttachedAccount

SECRET_NAME, BOOTSTRAP_NAME = "outscaler/shared/cherryservers", "outscaler/shared/cherryservers-bootstrap"
TOKEN = "CHERRY-EXAMPLE-TOKEN-0000-0000"
TOKEN_ID, TOKEN_SECRET = "nf8atf", "kwfs1t15pjmhk7n4"
CLOUD_INIT = """#!/bin/bash
kubeadm join --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}}
# --node-labels=pool={{.NodeGroup}}
"""
DEFINITION: Mapping[str, object] = {
    "project-id": PROJECT,
    "api-server-endpoint": "203.0.113.10:6443",
    "region": "eu_nord_1",
    "plan": "e5_1620v4",
    "os": "ubuntu_18_04",
}


class CherryAccount(AttachedAccount[CherryCloud, CherryHttpServer]):
    """One account with one token, served on loopback. cloud_init: of all pools, a Go template. create_tokens: the
    provider creates bootstrap tokens itself instead of reading one from the account's secrets.

    `cloud` and `server` exist once the account is attached to a clock.
    """

    def __init__(
        self,
        *,
        times: CherryDurations | None = None,
        ways: CherryRegistrationOptions | None = None,
        tls: Pair | None = None,
        cloud_init: str = CLOUD_INIT,
        create_tokens: bool = False,
    ) -> None:
        self._times, self._ways, self._tls = times, ways or CherryRegistrationOptions(), tls
        self._cloud_init, self._create = cloud_init, create_tokens

    def attach(self, clock: Callable[[], float], cluster: ObjectStore) -> Controller:
        """Create the account on that clock. Returns the controller that makes its servers Nodes of that cluster."""
        self._cloud = CherryCloud(clock, times=self._times)
        self._server = CherryHttpServer(self._cloud, tls=self._tls)
        self._server.add_token(TOKEN)
        return CherryNodeRegistration(self._cloud, cluster, self._ways)

    def secrets(self) -> dict[str, str]:
        """Return the texts of the secrets that `settings` names."""
        return {SECRET_NAME: TOKEN, BOOTSTRAP_NAME: json.dumps({"tokenId": TOKEN_ID, "tokenSecret": TOKEN_SECRET})}

    def definitions(self, pools: Mapping[str, Mapping[str, object]] | None = None) -> str:
        """Return a gcfg file: the definition of all pools, and additions for single pools."""
        text = base64.b64encode(self._cloud_init.encode()).decode()
        return gcfg({"default": {**DEFINITION, "cloudinit": text}, **(pools or {})})

    def settings(self, pools: Mapping[str, Mapping[str, object]] | None = None) -> dict[str, str]:
        """Return the policy's section `providers.cherryservers` for this account."""
        bootstrap = {"createBootstrapTokens": "true"} if self._create else {"bootstrapTokenSecret": BOOTSTRAP_NAME}
        return {
            "credentialsSecret": SECRET_NAME,
            "clusterName": self._ways.cluster,
            "endpoint": self.server.root,
            "cloudConfig": self.definitions(pools),
            **bootstrap,
        }


def gcfg(pools: Mapping[str, Mapping[str, object]]) -> str:
    """Format definitions as in upstream's file."""
    lines: list[str] = []
    for name, values in pools.items():
        lines.append(f'[nodegroupdef "{name}"]')
        for key, value in values.items():
            lines += [f"{key}={each}" for each in (value if isinstance(value, list | tuple) else (value,))]
    return "\n".join(lines) + "\n"
