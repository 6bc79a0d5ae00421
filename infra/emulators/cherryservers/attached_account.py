"""An emulated Cherry Servers account attached to a simulated cluster, for
LocalWorld and live emulations.

account = CherryAccount()
with LocalWorld(clouds=(account,)) as world:
    world.apply_policy(… providers: cherryservers: <account.settings()> …
                       nodeGroups: {provider: cherryservers, id: workers, min: 0, max: 5})
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from chalicelib.model.timestamps import parse_time
from infra.emulators.certificates import Pair
from infra.emulators.cherryservers.account import CLUSTER, POOL, PROJECT, CherryCloud
from infra.emulators.cherryservers.models import (
    ACTIVE,
    DEPLOYED,
    TERMINATING,
    CherryDurations,
    CherryServer,
    Disk,
)
from infra.emulators.cherryservers.server import CherryHttpServer
from infra.emulators.controllers.manager import Controller
from infra.emulators.controllers.object_writes import write
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.node_registration import (
    Due,
    VendorNodeRegistration,
    kubernetes_node,
)
from infra.emulators.vendor_common.server import AttachedAccount

KIND, NAMESPACE = "bootstrap.kubernetes.io/token", "kube-system"
_TOKEN = re.compile(r"(?<![a-z0-9.])([a-z0-9]{6})\.([a-z0-9]{16})(?![a-z0-9.])")
_LABELS = re.compile(r"--node-labels[= ]\"?([^\s\"']+)")


def script(user_data: str) -> str:
    """Return the decoded text, "" if it is absent or unreadable."""
    try:
        return base64.b64decode(user_data, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def node_labels(user_data: str) -> dict[str, str]:
    """Return labels of `--node-labels=pool=workers,team=web` in the script."""
    found: dict[str, str] = {}
    for text in _LABELS.findall(script(user_data)):
        for each in text.split(","):
            key, equals, value = each.partition("=")
            if equals:
                found[key] = value
    return found


def admitted(user_data: str, store: ObjectStore, now: float) -> bool:
    """Return whether one of the tokens in the script is valid in the cluster at this time."""
    for token_id, secret in _TOKEN.findall(script(user_data)):
        held = store.peek("secrets", f"bootstrap-token-{token_id}", NAMESPACE)
        if held is not None and _opens(held, token_id, secret, now):
            return True
    return False


def _opens(held: KubeObject, token_id: str, secret: str, now: float) -> bool:
    data = _data(held)
    end = data.get("expiration", "")
    return (
        held.get("type") == KIND
        and data.get("token-id") == token_id
        and data.get("token-secret") == secret
        and data.get("usage-bootstrap-authentication") == "true"
        and (not end or now < parse_time(end))
    )


def _data(held: KubeObject) -> Mapping[str, str]:
    """Return a Secret's decoded values. The server stores them as base64, in
    whichever form they were sent."""
    found = {
        key: base64.b64decode(value).decode() for key, value in (held.get("data") or {}).items()
    }
    return {**found, **(held.get("stringData") or {})}


UNINITIALIZED = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}
PREFIX = "cherryservers://"
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


class CherryRegistrationOptions(msgspec.Struct, frozen=True):
    """Settings of node registration. cluster: its tag. prefix: of a providerID, "" for a bare
    number. boot: seconds from deployed until the Node exists. adopt: seconds from then until the
    cloud controller sets providerID and labels. reserve: part of the capacity that the kubelet
    reserves. check_token: only servers with a bootstrap token known to the cluster join.
    pool_label: a Node has its pool as a label even if its cloud-init does not set it."""

    cluster: str = "ours"
    prefix: str = PREFIX
    boot: float = 30.0
    adopt: float = 0.0
    reserve: Mapping[str, str] = {}
    check_token: bool = False
    pool_label: bool = False


class CherryNodeRegistration(VendorNodeRegistration):
    """Creates and removes the Nodes of one account in one cluster; step() does what is due now."""

    def __init__(
        self,
        cloud: CherryCloud,
        store: ObjectStore,
        ways: CherryRegistrationOptions | None = None,
    ) -> None:
        self._cloud, self._ways = cloud, ways or CherryRegistrationOptions()
        self._let_in: dict[int, bool] = {}
        super().__init__(cloud, store, self._due_at)

    def step(self) -> None:
        super().step()
        if self._ways.adopt:
            with self._cloud.lock:
                found = joined(self._cloud, self._cloud.clock() - self._ways.adopt, self._ways)
            for name, server in found.items():
                held = self._store.peek("nodes", name)
                if held is not None and not held["spec"].get("providerID"):
                    write(
                        self._store,
                        "nodes",
                        adopted(held, node_object(self._cloud, server, self._ways)),
                    )

    def _due_at(self, now: float) -> Due:
        found = joined(self._cloud, now, self._ways)
        return Due(
            {
                name: partial(self._made, server)
                for name, server in found.items()
                if self._admits(server)
            }
        )

    def _admits(self, server: CherryServer) -> bool:
        """Return whether the cluster admits a server. Checked once, when it tries to join:
        a token may expire later."""
        if not self._ways.check_token or server.listed == float("-inf"):
            return True
        if server.id not in self._let_in:
            self._let_in[server.id] = admitted(
                server.order.user_data, self._store, self._cloud.clock()
            )
        return self._let_in[server.id]

    def _made(self, server: CherryServer) -> KubeObject:
        made = node_object(self._cloud, server, self._ways)
        return registered(made) if self._ways.adopt else made


def joined(
    cloud: CherryCloud, now: float, ways: CherryRegistrationOptions
) -> dict[str, CherryServer]:
    """Return the servers that are Nodes now, by hostname: servers of the cluster that have run long
    enough, including those being deleted. Of two with one hostname, the older one is the Node."""
    found: dict[str, CherryServer] = {}
    for server in cloud.servers.values():
        up = server.status == DEPLOYED and server.state in (ACTIVE, TERMINATING)
        if (
            up
            and server.fate.joins
            and server.tags.get(CLUSTER) == ways.cluster
            and now - _since(server) >= ways.boot
        ):
            found.setdefault(server.hostname, server)
    return found


def _since(server: CherryServer) -> float:
    """Return since when a server runs. Servers that a test added have always been running."""
    return float("-inf") if server.listed == float("-inf") else server.deployed


def node_object(
    cloud: CherryCloud, server: CherryServer, ways: CherryRegistrationOptions
) -> KubeObject:
    """Return the Node after its kubelet has registered it and the cloud
    controller has completed it."""
    plan, region = cloud.plan(server.order.plan), cloud.region(server.order.region)
    assert plan is not None
    assert region is not None
    pool = {"pool": server.tags[POOL]} if ways.pool_label and POOL in server.tags else {}
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/instance-type": plan.slug,
        **pool,
        **node_labels(server.order.user_data),
    }
    storage = server.order.os_partition_size * 2**30 or int(_bytes(plan.disks[0]))
    capacity = {
        "cpu": str(plan.cores),
        "memory": f"{plan.memory * _UNITS[plan.unit] // 1024}Ki",
        "ephemeral-storage": f"{storage // 1024}Ki",
        "pods": "110",
    }
    return kubernetes_node(
        server.hostname,
        f"{ways.prefix}{server.id}",
        instance_type=plan.slug,
        region=region.slug,
        labels=labels,
        capacity=capacity,
        reserve=ways.reserve,
    )


def registered(node: KubeObject) -> KubeObject:
    labels = {
        key: value
        for key, value in node["metadata"]["labels"].items()
        if "instance-type" not in key and not key.startswith("topology.")
    }
    return {
        **node,
        "metadata": {**node["metadata"], "labels": labels},
        "spec": {"taints": [*node["spec"]["taints"], dict(UNINITIALIZED)]},
    }


def adopted(held: KubeObject, whole: KubeObject) -> KubeObject:
    taints = [
        taint for taint in held["spec"].get("taints") or () if taint["key"] != UNINITIALIZED["key"]
    ]
    labels = {**whole["metadata"]["labels"], **held["metadata"].get("labels", {})}
    return {
        **held,
        "metadata": {**held["metadata"], "labels": labels},
        "spec": {**held["spec"], "providerID": whole["spec"]["providerID"], "taints": taints},
    }


def _bytes(disk: Disk) -> float:
    return disk.size * _UNITS[disk.unit]


SECRET_NAME, BOOTSTRAP_NAME = (
    "outscaler/shared/cherryservers",
    "outscaler/shared/cherryservers-bootstrap",
)
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
    """One account with one token, served on loopback. cloud_init: of all pools, a Go
    template. create_tokens: the provider creates bootstrap tokens itself instead of reading
    one from the account's secrets.

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
        """Create the account on that clock. Returns the controller that makes its
        servers Nodes of that cluster."""
        self._cloud = CherryCloud(clock, times=self._times)
        self._server = CherryHttpServer(self._cloud, tls=self._tls)
        self._server.add_token(TOKEN)
        return CherryNodeRegistration(self._cloud, cluster, self._ways)

    def secrets(self) -> dict[str, str]:
        """Return the texts of the secrets that `settings` names."""
        return {
            SECRET_NAME: TOKEN,
            BOOTSTRAP_NAME: json.dumps({"tokenId": TOKEN_ID, "tokenSecret": TOKEN_SECRET}),
        }

    def definitions(self, pools: Mapping[str, Mapping[str, object]] | None = None) -> str:
        """Return a gcfg file: the definition of all pools, and additions for single pools."""
        text = base64.b64encode(self._cloud_init.encode()).decode()
        return gcfg({"default": {**DEFINITION, "cloudinit": text}, **(pools or {})})

    def settings(self, pools: Mapping[str, Mapping[str, object]] | None = None) -> dict[str, str]:
        """Return the policy's section `providers.cherryservers` for this account."""
        bootstrap = (
            {"createBootstrapTokens": "true"}
            if self._create
            else {"bootstrapTokenSecret": BOOTSTRAP_NAME}
        )
        return {
            "credentialsSecret": SECRET_NAME,
            "clusterName": self._ways.cluster,
            "endpoint": self.server.root,
            "cloudConfig": self.definitions(pools),
            **bootstrap,
        }


def gcfg(pools: Mapping[str, Mapping[str, object]]) -> str:
    lines: list[str] = []
    for name, values in pools.items():
        lines.append(f'[nodegroupdef "{name}"]')
        for key, value in values.items():
            lines += [
                f"{key}={each}" for each in (value if isinstance(value, list | tuple) else (value,))
            ]
    return "\n".join(lines) + "\n"
