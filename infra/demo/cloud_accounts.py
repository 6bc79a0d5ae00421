"""The shop's clouds in addition to Cluster API: their groups, their shortages, and their observers.

Alibaba Cloud has none of the machines preferred for bursts. Exoscale's organisation has no quota for another instance.
The first server that Cherry Servers delivers never joins the cluster, like one with a broken disk. Huawei Cloud has
sold out the flavour preferred for the night.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from infra.demo.cloud_observers import AlicloudReader, CherryReader, CloudObserver, ExoscaleReader, HuaweiReader
from infra.demo.cluster_observer import Side
from infra.demo.console import Ledger, Say
from infra.demo.fixture import (
    BURST,
    CLUSTER,
    DAY,
    METAL,
    NIGHT,
    NIGHT_FIRST,
    NIGHT_SECOND,
    NIGHT_UID,
    SKS,
    SPARE,
    policy,
)
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import NO_STOCK, MachineType
from infra.emulators.cherryservers.account import PROJECT
from infra.emulators.cherryservers.attached_account import CherryAccount, CherryRegistrationOptions
from infra.emulators.cherryservers.models import NEVER_JOINS
from infra.emulators.cherryservers.models import CherryDurations as MetalTimes
from infra.emulators.cloud_account import CloudBeside
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.exoscale.models import Kind
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import DEFAULT, CcePool, ScaleGroup
from infra.emulators.huaweicloud.models import CceDurations as CceTimes
from infra.emulators.huaweicloud.node_registration import CceRegistrationOptions as CceWays

_TAGS = "k8s.io/cluster-autoscaler/node-template/"
_MEGA = Kind("a1000000-0000-4000-8000-000000000099", "standard", "mega", 12, 64 * 2**30)
_SCRIPT = """\
#!/bin/bash
echo 'KUBELET_EXTRA_ARGS=--node-labels=pool={{.NodeGroup}}' > /etc/default/kubelet
kubeadm join --discovery-token-unsafe-skip-ca-verification \\
  --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}} # {{.NodeGroup}}
"""
_METAL = {
    "projectId": PROJECT,
    "region": "LT-Siauliai",
    "plan": "amd-ryzen-9950x",
    "os": "ubuntu_24_04_64bit",
    "apiServerEndpoint": "203.0.113.10:6443",
    "cloudInit": _SCRIPT,
}
_STAY = 10
"""Minutes for which a new node of Huawei Cloud's pools may not be removed, as set in the pools."""
_PATIENCE = "3m"
"""Time limit for a server of Cherry Servers to join; in the emulation it is deployed within a minute."""


class Clouds:
    """Call furnish() before anything is observed. The accounts must be attached by then (live/emulation.py does that).

    broken: servers of Cherry Servers that never join.
    """

    def __init__(self, broken: int = 1) -> None:
        self._broken = broken
        self._alicloud = AlicloudAccount()
        self._exoscale = ExoscaleAccount()
        self._cherry = CherryAccount(
            times=MetalTimes(deploy=60.0), ways=CherryRegistrationOptions(cluster=CLUSTER), create_tokens=True
        )
        self._huawei = HuaweiAccount(
            times=CceTimes(order=10.0, build=20.0, install=20.0, delete=20.0), ways=CceWays(boot=5.0, taint=5.0)
        )
        self._scaling: dict[str, str] = {}
        self._pools: dict[str, str] = {}
        self._flavours: dict[str, str] = {}
        self._nodepool = ""

    @property
    def accounts(self) -> tuple[CloudBeside, ...]:
        return self._alicloud, self._exoscale, self._cherry, self._huawei

    def furnish(self) -> dict[str, str]:
        """Create the groups, all of them empty except Huawei Cloud's. Returns id -> the name in the demonstration."""
        self._bursts()
        self._renders()
        self._nights_and_days()
        return {**self._scaling, self._nodepool: SKS, METAL: METAL, **self._pools, **self._flavours}

    def policy(self, topic: str) -> str:
        """Return the policy's document. topic: of notifications."""
        scaling = [
            {"provider": "alicloud", "id": id_, "min": 0, "max": 3, "priority": 20 if name == BURST else 10}
            for id_, name in self._scaling.items()
        ]
        renders = [
            {"provider": "exoscale", "id": self._nodepool, "min": 0, "max": 3, "priority": 20},
            {"provider": "cherryservers", "id": METAL, "min": 0, "max": 3, "priority": 10},
        ]
        whole = self._cherry.settings()
        metal = {
            **{key: whole[key] for key in ("credentialsSecret", "endpoint")},
            "clusterName": CLUSTER,
            "createBootstrapTokens": True,
            "maxNodeProvisionTime": _PATIENCE,
            "nodeGroupDefs": {"default": _METAL},
        }
        sections = {
            "clusterapi": {"namespace": "default", "clusterName": "local"},
            "alicloud": self._alicloud.settings(),
            "exoscale": self._exoscale.settings(),
            "cherryservers": metal,
            "huaweicloud": self._huawei.settings(),
        }
        return policy(json.dumps(sections), json.dumps(scaling + renders), topic)

    def sides(
        self, ledger: Ledger, say: Say, first: Callable[[], None], answered: Callable[[], None]
    ) -> Sequence[Side]:
        readers = (
            AlicloudReader(self._alicloud.cloud, self._scaling),
            ExoscaleReader(self._exoscale, self._nodepool),
            CherryReader(self._cherry.cloud),
            HuaweiReader(self._huawei, self._flavours),
        )
        return [CloudObserver(reader, ledger, say, first, answered) for reader in readers]

    def _bursts(self) -> None:
        cloud = self._alicloud.cloud
        kinds = {BURST: MachineType("ecs.g7.2xlarge", 8, 32.0), SPARE: MachineType("ecs.c7.2xlarge", 8, 16.0)}
        for name, kind in kinds.items():
            cloud.types[kind.id] = kind
            tags = {
                f"{_TAGS}label/pool": name,
                f"{_TAGS}label/tier": "burst",
                f"{_TAGS}taint/dedicated": "burst:NoSchedule",
            }
            self._scaling[cloud.add_group(name, most=3, types=(kind.id,), machine_tags=tags).id] = name
        cloud.spoil(next(iter(self._scaling)), NO_STOCK, times=100)

    def _renders(self) -> None:
        zone = self._exoscale.zone
        zone.kinds[_MEGA.id] = _MEGA
        cluster = zone.add_cluster(CLUSTER)
        self._nodepool = zone.add_nodepool(cluster.id, SKS, type=_MEGA.name, labels={"pool": SKS}).pool.id
        zone.limit = zone.usage()
        for _ in range(self._broken):
            self._cherry.cloud.spoil(METAL, NEVER_JOINS)

    def _nights_and_days(self) -> None:
        """Add pools whose bounds are set at the vendor; the policy contains only rules for them. Nodes that a rule
        added stay for a while, needed or not; otherwise the rate would rise again and trigger the rule again."""
        cloud, cluster = self._huawei.cloud, self._huawei.cluster
        with cloud.lock:
            night = CcePool(
                NIGHT_UID,
                NIGHT,
                cluster.uid,
                cloud.clock(),
                least=1,
                most=4,
                utilization=0.3,
                cooldown=_STAY,
                labels={"pool": NIGHT},
            )
            night.groups[DEFAULT] = ScaleGroup(DEFAULT, cloud.number("group"), "c7.xlarge.2", cloud.zone(), 1)
            cluster.pools[NIGHT_UID] = night
            cloud.add_nodes(NIGHT_UID, 1)
            cloud.add_group(NIGHT_UID, "m7", flavor="m7.xlarge.8", priority=5)
            cloud.sell_out("m7.xlarge.8", cloud.zone("b"))
            day = cloud.add_pool(cluster.uid, DAY, size=2, least=2, most=6, cooldown=_STAY, labels={"pool": DAY})
        self._pools = {NIGHT_UID: NIGHT, day.uid: DAY}
        self._flavours = {
            f"{NIGHT_UID}/{DEFAULT}": NIGHT_SECOND,
            f"{NIGHT_UID}/m7": NIGHT_FIRST,
            f"{day.uid}/{DEFAULT}": DAY,
        }
