"""The emulated Cherry Servers in process, and operations as the executor passes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget, operation_id
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.policy.vendors.cherryservers import read_settings
from chalicelib.providers.cherryservers.api import CherryApi, open_api
from chalicelib.providers.cherryservers.decoding import CreateServer
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.cherryservers.provider import CherryServers, build
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.errors import Throttled, Transient
from infra.emulators.cherryservers.attached_account import BOOTSTRAP_NAME
from infra.emulators.cherryservers.models import CherryServer
from infra.emulators.kube.objects import KubeObject
from infra.emulators.vendor_common.http_messages import Answer, Incoming, scripted
from tests.operations import new_operation
from tests.providers.cherryservers.fixture import CherryBench, Workload
from tests.providers.emulated import OPENED, changed

CLUSTER, POOL, PROJECT = "ours", "pool3", 10001
TAGS = {"k8s-cluster": CLUSTER, "k8s-nodepool": POOL}
CONFIG = """\
[nodegroupdef "default"]
project-id=10001
region=eu_nord_1
plan=e5_1620v4
os=ubuntu_18_04
"""
SERVERS = f"/v1/projects/{PROJECT}/servers"
_WORDS = {"GET": "server", "PUT": "tag", "DELETE": "delete"}


class EmulatedCloud(CherryBench):
    """A project with servers of the pool. lag, delete_lag: seconds by which lists are
    late with new and with deleted servers. answers: fields that the vendor's answers have
    about a server, by its id."""

    def __init__(
        self,
        size: int = 0,
        *,
        lag: float = 0.0,
        delete_lag: float = 0.0,
        stock: int | None = None,
        pools: Sequence[ManagedPool] = (),
    ) -> None:
        super().__init__(lag=lag, delete_lag=delete_lag, pools=pools)
        self.answers: dict[object, dict[str, Any]] = {}
        self.server.edit = lambda body: changed(body, "id", self.answers)
        self.server.front.throttle.limits.clear()
        self.token_reads, self.selectors = 0, list[str]()
        if stock is not None:
            self.cloud.stock["e5_1620v4", "eu_nord_1"] = stock
        OPENED.enter_context(self)
        self.add(size)

    def _sleep(self, seconds: float) -> None:
        self._slept += seconds
        self.clock.advance(seconds)

    def add(
        self, size: int = 1, pool: str = POOL, *, spot: bool = False, **fields: Any
    ) -> list[int]:
        """Adds running servers. fields: what the vendor's answers say of them."""
        numbers = [self.cloud.add_server(pool, spot=spot).id for _ in range(size)]
        self.answers |= {number: fields for number in numbers if fields}
        return numbers

    def change(self, number: int, **fields: Any) -> None:
        for name in ("tags", "hostname"):
            if name in fields:
                setattr(self.all[number], name, fields.pop(name))
        self.answers[number] = {**self.answers.get(number, {}), **fields}

    @property
    def all(self) -> dict[int, CherryServer]:
        """The servers that exist."""
        return self.cloud.servers

    def alive(self, pool: str = POOL) -> list[int]:
        return [each.id for each in self.cloud.members(pool) if not each.leaving]

    @property
    def requests(self) -> list[str]:
        """All requests, as `servers`, `server 1000`, `plan NAME`, `create HOSTNAME`, `tag 1000`,
        `delete 1000`, `reboot 1000`."""
        return [_word(request) for request in self.server.requests]

    def posts(self) -> list[str]:
        return [request for request in self.requests if request.startswith("create")]

    def changes(self) -> list[str]:
        return [
            request
            for request in self.requests
            if request.startswith(("create", "delete", "tag", "reboot"))
        ]

    @property
    def deleted(self) -> list[int]:
        """The servers that the vendor has deleted for us."""
        log = [
            call for call in self.server.log if call.action == "delete_server" and call.status < 300
        ]
        return [int(call.path.rpartition("/")[2]) for call in log]

    def fail(self, requests: str, status: int = 500, times: int = 3, message: str = "") -> None:
        """Refuses the next requests of a method and path, by default as
        often as a read is attempted."""
        self.server.reply(requests, *[refusal(status, message)] * times)

    def build(
        self,
        *specs: str,
        config: str = CONFIG,
        kube: Sequence[tuple[str, str, dict[str, str]]] | Exception | None = None,
        **settings: str,
    ) -> CherryServers:
        """A new provider; specs in upstream's form. kube: the cluster's nodes (name, providerID,
        labels), the error of their list, None for no connection."""
        nodes = "\n".join(specs or (f"0:10:{POOL}", "0:10:pool2"))
        self.settings = {"nodes": nodes, "cloudConfig": config, **settings}
        connection = self.connection(self.server.root)
        return build(
            msgspec.structs.replace(
                connection, kube=None if kube is None else Kube(kube, self.selectors)
            )
        )

    def read_secret(self, name: str, *, wrong: bool = False) -> str:
        self.token_reads += name == BOOTSTRAP_NAME
        return super().read_secret(name, wrong=wrong)

    def api(
        self,
        read_secret: Callable[[str], str] | None = None,
        *,
        project: int = PROJECT,
        **settings: str,
    ) -> CherryApi:
        """A new client of the API."""
        self.settings = {"nodes": f"0:10:{POOL}", "cloudConfig": CONFIG, **settings}
        connection: Connection = self.connection(self.server.root)
        if read_secret is not None:
            connection = msgspec.structs.replace(connection, read_secret=read_secret)
        return open_api(connection, read_settings(connection.settings), project)

    def group(self, *nodes: Node, **more: Any) -> NodeGroup:
        """Returns the pool as the next pass reads it."""
        return {each.id: each for each in self.build(**more).observe(nodes).groups}[POOL]


class Kube(Workload):
    """The cluster's nodes. selectors: of the lists so far."""

    def __init__(
        self, nodes: Sequence[tuple[str, str, dict[str, str]]] | Exception, selectors: list[str]
    ) -> None:
        self.selectors = selectors
        super().__init__(lambda: _objects(nodes))

    def list_pages(self, path: str, *, query: Any = None) -> Any:
        self.selectors.append((query or {}).get("labelSelector", ""))
        return super().list_pages(path, query=query)


def _objects(nodes: Sequence[tuple[str, str, dict[str, str]]] | Exception) -> list[KubeObject]:
    if isinstance(nodes, Exception):
        raise nodes
    return [
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": number} if number else {},
        }
        for name, number, labels in nodes
    ]


def _word(request: Incoming) -> str:
    if request.path == SERVERS:
        return (
            "servers"
            if request.method == "GET"
            else f"create {json.loads(request.body)['hostname']}"
        )
    if request.path.endswith("/actions"):
        return f"{json.loads(request.body)['type']} {request.path.split('/')[-2]}"
    name = request.path.rpartition("/")[2]
    return f"plan {name}" if "/plans/" in request.path else f"{_WORDS[request.method]} {name}"


def refusal(status: int, message: str = "", **headers: str) -> Answer:
    """An error in the vendor's form."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return scripted(status, {"code": status, "message": message}, named)


def grow(from_size: int, to_size: int, *, pool: str = POOL, plan: str = "p") -> Operation:
    return operation(OperationKind.SCALE_UP, pool, from_size, to_size, (), plan)


def remove(
    from_size: int,
    *targets: int | RemovalTarget,
    pool: str = POOL,
    kind: OperationKind = OperationKind.DELETE_NODES,
) -> Operation:
    named = tuple(
        each
        if isinstance(each, RemovalTarget)
        else RemovalTarget(f"{pool}-{each}", f"cherryservers://{each}", str(each))
        for each in targets
    )
    return operation(kind, pool, from_size, from_size - len(named), named)


def operation(
    kind: OperationKind,
    pool: str,
    from_size: int,
    to_size: int,
    targets: tuple[RemovalTarget, ...] = (),
    plan: str = "p",
) -> Operation:
    name = operation_id(
        "ours", pool, kind, from_size, to_size, tuple(each.node for each in targets), plan
    )
    return new_operation(
        name, "ours", "cherryservers", pool, kind, plan, 0.0, from_size, to_size, targets
    )


def claimed(asked: Operation) -> Operation:
    """Returns the operation as the executor claims it for its next step."""
    return asked.with_status(attempt=asked.status.attempt + 1)


def continued(cloud: EmulatedCloud, asked: Operation, outcome: Outcome) -> Operation:
    """Returns the operation as the executor passes it to the next step, when that is due."""
    assert isinstance(outcome, InProgress), outcome
    cloud.settle(outcome.after)
    return claimed(asked.with_status(data=outcome.data, step=outcome.step))


def finish(
    cloud: EmulatedCloud, asked: Operation, outcome: Outcome, *specs: str, **more: Any
) -> Outcome:
    """Runs an operation in progress to its end, a new provider and a new attempt for each step;
    temporary errors are retried."""
    for _ in range(100):
        if not isinstance(outcome, InProgress):
            return outcome
        asked = continued(cloud, asked, outcome)
        try:
            outcome = cloud.build(*specs, **more).poll(asked)
        except (Transient, Throttled) as error:
            outcome = InProgress(max(1.0, error.retry_after), asked.status.step, asked.status.data)
    raise AssertionError(f"{asked.spec.id} does not end")


def drive(cloud: EmulatedCloud, asked: Operation, *specs: str, **more: Any) -> Outcome:
    """Runs an operation from its beginning to its end."""
    verb = {
        OperationKind.SCALE_UP: "scale_up",
        OperationKind.DECREASE_TARGET: "decrease_target",
    }.get(asked.spec.kind, "delete_nodes")
    for _ in range(100):
        asked = claimed(asked)
        try:
            outcome: Outcome = getattr(cloud.build(*specs, **more), verb)(asked)
        except (Transient, Throttled) as error:
            cloud.settle(max(1.0, error.retry_after))
            continue
        return finish(cloud, asked, outcome, *specs, **more)
    raise AssertionError(f"{asked.spec.id} does not begin")


def node(name: str, provider_id: str, **labels: str) -> Node:
    return Node(name, dict(labels), {}, provider_id=provider_id)


# -- the documented examples

ROW: dict[str, Any] = {
    "id": 1000,
    "name": "server-1000",
    "hostname": "k8s-cluster2-pool3-gndxdmmw",
    "state": "active",
    "tags": TAGS,
}
REGION: dict[str, Any] = {"id": 1, "slug": "LT-Siauliai", "name": "Lithuania", "region_iso_2": "LT"}
SPECS: dict[str, Any] = {
    "cpus": {"count": 1, "cores": 16, "frequency": 4.3, "unit": "GHz", "name": "CPU Ryzen 9950X"},
    "memory": {"count": 1, "total": 192, "unit": "GB", "name": "192GB 5600MHz"},
    "storage": [{"count": 2, "name": "NVMe 1TB", "size": 1, "unit": "TB", "type": "NVME"}],
    "nics": {"name": "3Gbps"},
}
FULL_ROW: dict[str, Any] = {
    "id": 899712,
    "name": "AMD Ryzen 9950X",
    "hostname": "w1",
    "state": "active",
    "status": "deployed",
    "spot_instance": False,
    "image": "Ubuntu 24.04 64bit",
    "region": REGION,
    "plan": {
        "id": 1095,
        "slug": "amd-ryzen-9950x",
        "name": "AMD Ryzen 9950X",
        "type": "baremetal",
        "specs": SPECS,
    },
    "ip_addresses": [
        {"id": "571f30fb", "address": "10.168.1.2", "address_family": 4, "type": "private-ip"}
    ],
    "tags": {},
    "created_at": "2026-06-08T09:20:28+00:00",
    "termination_date": "None",
}
PLAN: dict[str, Any] = {
    "id": 1095,
    "slug": "amd-ryzen-9950x",
    "name": "AMD Ryzen 9950X",
    "type": "baremetal",
    "specs": SPECS,
    "pricing": [
        {"id": 1, "unit": "Hourly", "price": 0.4932, "currency": "EUR", "taxed": False},
        {"id": 7, "unit": "Spot hourly", "price": 0.37, "currency": "EUR", "taxed": False},
        {"id": 2, "unit": "Monthly", "price": 299.0, "currency": "EUR", "taxed": False},
    ],
    "available_regions": [
        {**REGION, "stock_qty": 4, "spot_qty": 1},
        {"id": 4, "slug": "US-Chicago", "name": "United States", "stock_qty": 0, "spot_qty": 0},
    ],
}


def order(number: int = 0, **more: Any) -> CreateServer:
    """The documented example of an order; number: part of its hostname."""
    fields: dict[str, Any] = {
        "project_id": PROJECT,
        "plan": "e5_1620v4",
        "hostname": f"k8s-cluster2-pool3-{number:08d}",
        "image": "ubuntu_18_04",
        "region": "eu_nord_1",
        "ssh_keys": (101, 102),
        "user_data": "PGJhc2U2ND4=",
        "tags": TAGS,
        "os_partition_size": 60,
    }
    return CreateServer(**fields | more)


def definition(**more: Any) -> Definition:
    """A pool of the example plan."""
    fields: dict[str, Any] = {
        "pool": "pool3",
        "cluster_name": "cluster2",
        "project_id": PROJECT,
        "api_server_endpoint": "203.0.113.10:6443",
        "region": "LT-Siauliai",
        "plan": "amd-ryzen-9950x",
        "os": "ubuntu_24_04_64bit",
        "ssh_key_ids": (),
        "cloudinit": "",
        "hostname_pattern": "",
    }
    return Definition(**fields | more)
