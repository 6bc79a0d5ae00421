"""The clouds that the shop has machines in beside Cluster API: what stands there, what is scarce, and who watches.

Alibaba Cloud has none of the machines that are preferred for bursts. Exoscale's organisation may not have one more
instance. The first server that Cherry Servers delivers never joins the cluster, as one does whose disk is broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from infra.local.alicloud.account import AlicloudAccount
from infra.local.alicloud.objects import NO_STOCK, MachineType
from infra.local.beside import CloudBeside
from infra.local.cherryservers.account import CherryAccount
from infra.local.cherryservers.cloud import PROJECT
from infra.local.cherryservers.joining import Ways
from infra.local.cherryservers.objects import NEVER_JOINS
from infra.local.cherryservers.objects import Times as MetalTimes
from infra.local.exoscale.account import ExoscaleAccount
from infra.local.exoscale.objects import Kind
from infra.local.story.bursting import BurstWatcher
from infra.local.story.ledger import Ledger
from infra.local.story.metal import MetalWatcher
from infra.local.story.scene import BURST, CLUSTER, METAL, SKS, SPARE, policy
from infra.local.story.sks import SksWatcher
from infra.local.story.telling import Say
from infra.local.story.watching import Side

_TAGS = "k8s.io/cluster-autoscaler/node-template/"
_MEGA = Kind("a1000000-0000-4000-8000-000000000099", "standard", "mega", 12, 64 * 2**30)
_SCRIPT = """\
#!/bin/bash
echo 'KUBELET_EXTRA_ARGS=--node-labels=pool={{.NodeGroup}}' > /etc/default/kubelet
kubeadm join --discovery-token-unsafe-skip-ca-verification \\
  --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}} # {{.NodeGroup}}
"""
_METAL = {"projectId": PROJECT, "region": "LT-Siauliai", "plan": "amd-ryzen-9950x", "os": "ubuntu_24_04_64bit",
          "apiServerEndpoint": "203.0.113.10:6443", "cloudInit": _SCRIPT}
_PATIENCE = "3m"
"""How long a server of Cherry Servers may take to join; in the emulation it is deployed within a minute."""


class Clouds:
    """furnish() before anything looks at them; they must be attached by then (live/emulation.py does that)."""

    def __init__(self) -> None:
        self._alicloud = AlicloudAccount()
        self._exoscale = ExoscaleAccount()
        self._cherry = CherryAccount(times=MetalTimes(deploy=60.0), ways=Ways(cluster=CLUSTER), create_tokens=True)
        self._scaling: dict[str, str] = {}
        self._nodepool = ""

    @property
    def accounts(self) -> tuple[CloudBeside, ...]:
        """All of them."""
        return self._alicloud, self._exoscale, self._cherry

    def furnish(self) -> dict[str, str]:
        """Make the groups, all of them empty; id -> the name that the story calls it by."""
        self._bursts()
        self._renders()
        return {**self._scaling, self._nodepool: SKS, METAL: METAL}

    def policy(self) -> str:
        """The policy's document."""
        scaling = [{"provider": "alicloud", "id": id_, "min": 0, "max": 3, "priority": 20 if name == BURST else 10}
                   for id_, name in self._scaling.items()]
        renders = [{"provider": "exoscale", "id": self._nodepool, "min": 0, "max": 3, "priority": 20},
                   {"provider": "cherryservers", "id": METAL, "min": 0, "max": 3, "priority": 10}]
        whole = self._cherry.settings()
        metal = {**{key: whole[key] for key in ("credentialsSecret", "endpoint")},
                 "clusterName": CLUSTER, "createBootstrapTokens": True, "maxNodeProvisionTime": _PATIENCE,
                 "nodeGroupDefs": {"default": _METAL}}
        sections = {"clusterapi": {"namespace": "default", "clusterName": "local"},
                    "alicloud": self._alicloud.settings(), "exoscale": self._exoscale.settings(),
                    "cherryservers": metal}
        return policy(json.dumps(sections), json.dumps(scaling + renders))

    def sides(self, ledger: Ledger, say: Say, first: Callable[[], None],
              answered: Callable[[], None]) -> Sequence[Side]:
        """Who watches them."""
        return (BurstWatcher(self._alicloud.cloud, self._scaling, ledger, say, first, answered),
                SksWatcher(self._exoscale, self._nodepool, ledger, say, first, answered),
                MetalWatcher(self._cherry.cloud, ledger, say, first, answered))

    def _bursts(self) -> None:
        cloud = self._alicloud.cloud
        kinds = {BURST: MachineType("ecs.g7.2xlarge", 8, 32.0), SPARE: MachineType("ecs.c7.2xlarge", 8, 16.0)}
        for name, kind in kinds.items():
            cloud.types[kind.id] = kind
            tags = {f"{_TAGS}label/pool": name, f"{_TAGS}label/tier": "burst",
                    f"{_TAGS}taint/dedicated": "burst:NoSchedule"}
            self._scaling[cloud.add_group(name, most=3, types=(kind.id,), machine_tags=tags).id] = name
        cloud.spoil(next(iter(self._scaling)), NO_STOCK, times=100)

    def _renders(self) -> None:
        zone = self._exoscale.zone
        zone.kinds[_MEGA.id] = _MEGA
        cluster = zone.add_cluster(CLUSTER)
        self._nodepool = zone.add_nodepool(cluster.id, SKS, type=_MEGA.name, labels={"pool": SKS}).pool.id
        zone.limit = zone.usage()
        self._cherry.cloud.spoil(METAL, NEVER_JOINS)
