"""Each shipped role with the policy that it is documented for: manifests as a person edits and
applies them, an emulated cluster that evaluates them, an emulated account of each vendor, and the
commands that are run with them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import OPERATION_ANNOTATION
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.cherryservers.tokens import LABEL, TYPE
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.kube import crds
from infra.emulators.kube.auth import MASTERS, RbacRule, User, granted
from infra.emulators.kube.in_process_transport import DirectLine
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.functional.doctor_cases import ACCOUNT, NOW
from tests.providers.clusterapi.objects import GROUP, cluster, deployment, machine, machine_set
from tests.source_trees import ROOT

Json = dict[str, Any]
OWN_GROUP = "capi.test"
WORKLOAD, TOKENS = "rbac-workload.yaml", "rbac-bootstrap-tokens.yaml"
NAMESPACED, EVERYWHERE, WATCHER = (
    "rbac-capi-namespaced.yaml",
    "rbac-capi-management.yaml",
    "outscaler-watcher.yaml",
)
_ACCOUNTS: Mapping[str, Any] = {
    "alicloud": AlicloudAccount,
    "cherryservers": CherryAccount,
    "exoscale": ExoscaleAccount,
    "huaweicloud": HuaweiAccount,
}

_NAME_GROUPS = ("alicloud", "cherryservers")  # the others discover theirs


class Manifest(msgspec.Struct, frozen=True):
    """A file of infra/kubernetes. edits: (text, text in its place), as its
    comments tell a person to write."""

    file: str
    edits: tuple[tuple[str, str], ...] = ()

    def documents(self) -> Sequence[Json]:
        """What is applied; not to be changed, because every test gets the same documents."""
        return _documents(self)

    def text(self) -> str:
        """The edited file."""
        text = (ROOT / "infra" / "kubernetes" / self.file).read_text("utf-8")
        for given, needed in self.edits:
            assert given in text, (self.file, given)
            text = text.replace(given, needed)
        return text


@cache
def _documents(manifest: Manifest) -> tuple[Json, ...]:
    return tuple(yaml.safe_load_all(manifest.text()))


class RoleCase(msgspec.Struct, frozen=True):
    """A policy and its roles. workload, management: what is applied in each cluster;
    management is empty where there is none. vendor: whose account is emulated; its section of
    the policy then comes from there."""

    workload: tuple[Manifest, ...]
    spec: Mapping[str, Any] = {}
    management: tuple[Manifest, ...] = ()
    vendor: str = ""
    tokens: bool = False
    capi_group: str = ""
    capi_namespace: str = "default"

    @property
    def files(self) -> set[str]:
        """The files that are applied."""
        return {each.file for each in (*self.workload, *self.management)}


_REPAIRS: Mapping[str, Any] = {"repair": [{"condition": "KernelDeadlock", "after": "10m"}]}


def capi_case(
    *, separate: bool, namespaces: Sequence[str], group: str = "", **spec: Any
) -> RoleCase:
    """A policy of Cluster API that uses all rules of its role, those for repairs
    included. separate: in a management cluster of its own. namespaces: which the policy
    names, none for the whole cluster."""
    settings: Json = {"clusterName": "c1"} if len(namespaces) < 2 else {}
    if len(namespaces) == 1:
        settings["namespace"] = namespaces[0]
    elif namespaces:
        settings["autoDiscovery"] = [
            f"clusterapi:namespace={each},clusterName=c1" for each in namespaces
        ]
    if group:
        settings["group"] = group
    if separate:
        settings["kubeconfigSecret"] = "outscaler/prod/clusterapi"
    named = (("apiGroups: [cluster.x-k8s.io]", f"apiGroups: [{group}]"),) if group else ()
    roles = tuple(
        Manifest(NAMESPACED, (*named, ("namespace: default", f"namespace: {each}")))
        for each in namespaces
    ) or (Manifest(EVERYWHERE, named),)
    return RoleCase(
        workload=(Manifest(WORKLOAD), *(() if separate else roles)),
        management=roles if separate else (),
        spec={"providers": {"clusterapi": settings}, "nodeLifecycle": _REPAIRS, **spec},
        capi_group=group or GROUP,
        capi_namespace=namespaces[0] if namespaces else "default",
    )


_ONE = ("default",)
_STATUS = (("cluster-autoscaler-status", "own-status"),)
# Where the option `namespace` is another one: the ConfigMap, the Role and its RoleBinding, but not
# the account, nor the Role of HorizontalNodeAutoscalers.
_MOVED = (
    (
        "name: cluster-autoscaler-status\n  namespace: kube-system",
        "name: own-status\n  namespace: scaling",
    ),
    (
        "kind: Role\nmetadata:\n  name: outscaler\n  namespace: kube-system",
        "kind: Role\nmetadata:\n  name: outscaler\n  namespace: scaling",
    ),
    (
        "kind: RoleBinding\nmetadata:\n  name: outscaler\n  namespace: kube-system",
        "kind: RoleBinding\nmetadata:\n  name: outscaler\n  namespace: scaling",
    ),
    ("resourceNames: [cluster-autoscaler-status]", "resourceNames: [own-status]"),
)
CASES: Mapping[str, RoleCase] = {
    "alicloud": RoleCase((Manifest(WORKLOAD),), vendor="alicloud"),
    "exoscale": RoleCase((Manifest(WORKLOAD),), vendor="exoscale"),
    "huaweicloud": RoleCase((Manifest(WORKLOAD),), vendor="huaweicloud"),
    "cherryservers": RoleCase((Manifest(WORKLOAD),), vendor="cherryservers"),
    "cherryservers that makes tokens": RoleCase(
        (Manifest(WORKLOAD), Manifest(TOKENS)), vendor="cherryservers", tokens=True
    ),
    **{
        f"clusterapi {place}, {words}, {group or 'default group'}": capi_case(
            separate=place == "elsewhere", namespaces=namespaces, group=group
        )
        for place in ("here", "elsewhere")
        for words, namespaces in (
            ("one namespace", ("prod",)),
            ("two", ("prod", "more")),
            ("all namespaces", ()),
        )
        for group in ("", OWN_GROUP)
    },
    "priority expander": capi_case(
        separate=False, namespaces=_ONE, options={"expander": "priority"}
    ),
    "no status": capi_case(
        separate=False, namespaces=_ONE, options={"writeStatusConfigmap": False}
    ),
    "status of another name": msgspec.structs.replace(
        capi_case(separate=False, namespaces=_ONE, options={"statusConfigMapName": "own-status"}),
        workload=(Manifest(WORKLOAD, _STATUS), Manifest(NAMESPACED)),
    ),
    "status in another namespace": msgspec.structs.replace(
        capi_case(
            separate=False,
            namespaces=_ONE,
            options={
                "namespace": "scaling",
                "statusConfigMapName": "own-status",
                "expander": "priority",
            },
            scaleUp={"horizontalNodeAutoscalers": True},
        ),
        workload=(Manifest(WORKLOAD, _MOVED), Manifest(NAMESPACED)),
    ),
    "full reads": capi_case(separate=False, namespaces=_ONE, reading="full"),
    "verified reads": capi_case(separate=False, namespaces=_ONE, reading="verify"),
    "watcher": msgspec.structs.replace(
        capi_case(
            separate=False,
            namespaces=_ONE,
            kubernetes={
                "kubeconfigSecret": "outscaler/prod/kubeconfig",
                "watcherSecret": "outscaler/prod/kubeconfig-watcher",
            },
        ),
        workload=(Manifest(WORKLOAD), Manifest(NAMESPACED), Manifest(WATCHER)),
    ),
}


class RoleStage:
    """A case on the emulation. policy: its file. commands: arguments that every command
    takes. secrets: name -> text. servers: the workload cluster, and the management
    cluster where there is one."""

    def __init__(
        self, case: RoleCase, folder: Path, stack: ExitStack, mode: str = "active"
    ) -> None:
        self.case, self.folder = case, folder
        self.secrets: dict[str, str] = {}
        self._asked: dict[int, int] = {}
        clock = ManualClock(NOW)
        definitions = (
            _definitions(folder / "crds", case.capi_group) if case.capi_group else crds.OWN
        )
        stores = [ObjectStore(clock) for _ in range(2 if case.management else 1)]
        spec: Json = {
            "kubernetes": {"kubeconfigSecret": "outscaler/prod/kubeconfig"},
            "mode": mode,
            **case.spec,
        }
        if case.vendor:
            spec |= self._account(stores[0], stack)
        self.servers = [
            stack.enter_context(
                ApiServer(
                    store,
                    users=(
                        User("admin", "token-of-admin", (MASTERS,)),
                        User(ACCOUNT, "token-of-account"),
                    ),
                    rbac={ACCOUNT: self.rules(at)},
                    crd_directory=definitions,
                )
            )
            for at, store in enumerate(stores)
        ]
        _furnish(stores[0], case)
        if case.capi_group:
            _furnish_capi(stores[-1], case)
        self.policy = folder / "policy.yaml"
        document = {
            "apiVersion": "outscaler.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": "prod"},
            "spec": spec,
        }
        self.policy.write_text(yaml.safe_dump(document))
        files = [folder / f"kubeconfig-{at}" for at in range(len(stores))]
        for file, server in zip(files, self.servers, strict=True):
            file.write_text(server.kubeconfig(ACCOUNT))
        self.secrets["outscaler/prod/kubeconfig"] = files[0].read_text()
        self.secrets["outscaler/prod/clusterapi"] = files[-1].read_text()
        self.secrets["outscaler/prod/kubeconfig-watcher"] = "0123456789abcdef" * 4
        flags = ("--kubeconfig", "--management-kubeconfig")
        self.clusters = [
            word for flag, file in zip(flags, files, strict=False) for word in (flag, str(file))
        ]
        self.given: list[str] = []
        for number, (name, text) in enumerate(self.secrets.items()):
            (folder / f"secret-{number}").write_text(text)
            self.given += ["--secret", f"{name}={folder / f'secret-{number}'}"]

    def rules(self, at: int) -> list[RbacRule]:
        """What the manifests of a cluster grant to the account. at: 0 the workload
        cluster, 1 the management one."""
        manifests = self.case.management if at else self.case.workload
        return granted([document for each in manifests for document in each.documents()], ACCOUNT)

    def clients(self) -> list[KubeClient]:
        """Clients of the account, one for each cluster, without a network."""
        return [_client(server) for server in self.servers]

    def permit(self, at: int, rules: Sequence[RbacRule]) -> None:
        """Give the account these rules in place of its own."""
        self.servers[at].api.authority.admit(User(ACCOUNT, "token-of-account"), rules)

    def refused(self) -> list[str]:
        """The requests that were answered with 403 since the call before,
        with the cluster's number."""
        logs = [server.requests for server in self.servers]
        new = [(at, each) for at, log in enumerate(logs) for each in log[self._asked.get(at, 0) :]]
        self._asked = {at: len(log) for at, log in enumerate(logs)}
        return [f"{at} {each.method} {each.path}" for at, each in new if each.status == 403]

    def _account(self, store: ObjectStore, stack: ExitStack) -> Json:
        """Start the vendor's account with one empty group; return its sections of the policy."""
        vendor = self.case.vendor
        made = _ACCOUNTS[vendor](**({"create_tokens": True} if self.case.tokens else {}))
        made.attach(time.time, store)  # the commands sign by this computer's clock
        made.start()
        stack.callback(made.stop)
        group = made.cloud.add_group("web", most=3).id if vendor == "alicloud" else "web"
        text = json.dumps(made.settings())
        for number, (name, value) in enumerate(made.secrets().items()):
            own = f"outscaler/prod/{vendor}-{number}"
            self.secrets[own] = value
            text = text.replace(json.dumps(name), json.dumps(own))
        named = (
            [{"provider": vendor, "id": group, "min": 0, "max": 3}]
            if vendor in _NAME_GROUPS
            else []
        )
        return {"providers": {vendor: json.loads(text)}, "nodeGroups": named}


def _client(server: ApiServer) -> KubeClient:
    config, line = server.kubeconfig(ACCOUNT), DirectLine(server, lambda _: None)
    access = KubernetesAccess(kubeconfig_secret="kubeconfig")
    return connect(access, lambda _: config, clock=lambda: NOW, dial=line.dial)


@contextmanager
def stage(case: RoleCase, folder: Path, mode: str = "active") -> Iterator[RoleStage]:
    """A case with its servers running."""
    with ExitStack() as stack:
        yield RoleStage(case, folder, stack, mode)


def _definitions(folder: Path, group: str) -> Path:
    folder.mkdir()
    for path in crds.OWN.glob("*.yaml"):
        (folder / path.name).write_text(path.read_text().replace(GROUP, group))
    return folder


def _furnish(store: ObjectStore, case: RoleCase) -> None:
    """A node that a removal has left tainted, and a bootstrap token that Outscaler has made."""
    taints = [{"key": TO_BE_DELETED, "value": "1794999000", "effect": "NoSchedule"}]
    meta = {"name": "n-0", "annotations": {OPERATION_ANNOTATION: "op-1"}}
    store.load("nodes", [{"metadata": meta, "spec": {"providerID": "c:///i-0", "taints": taints}}])
    if case.tokens:
        meta = {
            "name": "bootstrap-token-outsc0",
            "namespace": "kube-system",
            "labels": {LABEL: "true"},
        }
        store.load(
            "secrets",
            [
                {
                    "metadata": meta,
                    "type": TYPE,
                    "data": {"token-id": "b3V0c2Mw", "token-secret": "ZXhhbXBsZQ=="},
                }
            ],
        )


def _furnish_capi(store: ObjectStore, case: RoleCase) -> None:
    """A MachineDeployment of one machine, which a removal has left marked."""
    space, group = case.capi_namespace, case.capi_group
    objects = (
        ("clusters", {**cluster(), "metadata": {**cluster()["metadata"], "namespace": space}}),
        ("machinedeployments", deployment("md-0", namespace=space)),
        ("machinesets", machine_set("ms", of="md-0", namespace=space)),
        (
            "machines",
            machine(
                "m-0",
                "ms",
                namespace=space,
                provider_id="c:///i-0",
                node="n-0",
                mark="outscaler/op-1/1794999000",
            ),
        ),
    )
    for plural, made in objects:
        store.load(plural, [json.loads(json.dumps(made).replace(GROUP, group))], group)
