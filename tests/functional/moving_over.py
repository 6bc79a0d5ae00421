"""The hour in which a person moves over from Cluster Autoscaler, on virtual time: every command
of docs/from-cluster-autoscaler.md in order, against an emulated Kubernetes cluster with a Cluster
Autoscaler at work and an emulated AWS account.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import yaml

from chalicelib.cli.commands.kubeconfig import TYPE
from chalicelib.cli.main import main
from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from infra.emulators.kube.auth import RbacRule, User
from infra.emulators.local_world import LocalWorld
from infra.emulators.other_autoscaler import MachineDeploymentGroups, OtherAutoscaler
from tests.functional.doctor_cases import ACCOUNT, rules_of

TOKEN = "token-of-the-account"
_TOKEN_SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": TYPE,
    "metadata": {"name": "outscaler-token", "namespace": "kube-system"},
    "data": {"token": "dG9rZW4tb2YtdGhlLWFjY291bnQ="},
}


class HourStep(msgspec.Struct, frozen=True):
    """One step. command: as typed. says: what a terminal shows, among other things. action: what
    other people and programs do before it. code: the expected exit code."""

    command: str
    says: str
    action: Callable[[Hour], object] | None = None
    code: int = 0


class SharedWorld(LocalWorld):
    """A world in which Cluster Autoscaler acts, too."""

    def __init__(self, aws: LocalAws) -> None:
        super().__init__(aws, name="shop")
        groups = MachineDeploymentGroups(self.kube)
        self.other = OtherAutoscaler(self.kube, self.clock, groups, unneeded_for=300.0)

    def settle(self) -> None:
        """See LocalWorld."""
        super().settle()
        self.other.step()
        super().settle()


class Hour:
    """The world of the newcomer: a cluster, its Cluster Autoscaler, and an AWS account.
    folder: of the newcomer."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self.aws, self.folder = aws, folder
        self.world = SharedWorld(aws)

    def begin(self) -> None:
        """Fill the cluster: two groups, a web shop with pods that wait, and Cluster Autoscaler."""
        world = self.world
        world.seed(
            objects.cluster(),
            objects.machine_deployment("workers", 2, 1, 8),
            objects.machine_deployment("batch", 1, 0, 4, labels={"pool": "batch"}),
            objects.deployment("web", replicas=4, cpu="1"),
            objects.deployment("cluster-autoscaler", namespace="kube-system", cpu="100m"),
        )
        world.step(300)
        world.seed(objects.deployment("checkout", replicas=6, cpu="1"))
        world.step(15)
        (self.folder / "cluster-autoscaler.yaml").write_text(yaml.safe_dump(autoscaler()))
        (self.folder / "admin").write_text(world.server.kubeconfig("admin"))
        world.kube.load("secrets", [_TOKEN_SECRET])
        self.permit(
            *[
                rule
                for rule in rules_of("rbac-workload.yaml")
                if "pods/eviction" not in rule.resources
            ]
        )

    def permit(self, *rules: RbacRule) -> None:
        """Give the account of the token these rights."""
        self.world.server.api.authority.admit(User(ACCOUNT, TOKEN), rules)

    def correct(self) -> None:
        """Apply the manifests of infra/kubernetes, and reserve what the
        kubelet takes of each node."""
        self.permit(*rules_of("rbac-workload.yaml", "rbac-capi-namespaced.yaml"))
        path = self.folder / "shop.yaml"
        document = yaml.safe_load(path.read_text())
        document["spec"]["providers"]["clusterapi"] |= {
            "reservedCpu": "100m",
            "reservedMemory": "512Mi",
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False))

    def store_secret(self) -> None:
        """Store the kubeconfig for the functions."""
        self.world.put_secret(
            "ssm:/outscaler/shop/kubeconfig", (self.folder / "kubeconfig.outscaler").read_text()
        )

    def pass_time(self) -> None:
        """An hour with more and fewer pods, in which Cluster Autoscaler acts."""
        for replicas in (12, 2, 14, 1):
            self.scale("checkout", replicas)
            self.world.step(15 * 60)

    def scale(self, name: str, replicas: int, namespace: str = "default") -> None:
        """Change the number of replicas of a Deployment, as `kubectl scale` does."""
        found = self.world.kube.get("deployments", name, namespace, "apps")
        assert found is not None
        spec = {**found["spec"], "replicas": replicas}
        self.world.kube.update("deployments", {**found, "spec": spec}, "apps")
        self.world.settle()

    def stop_autoscaler(self) -> None:
        """`kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0`,
        and a wait for its lease."""
        self.world.other.stop()
        self.scale("cluster-autoscaler", 0, "kube-system")
        self.world.step(180)

    def run_active(self) -> None:
        """A quarter of an hour in mode active, with more pods and then fewer."""
        self.scale("checkout", 9)
        self.world.step(660)
        self.scale("checkout", 2)
        self.world.step(240)

    def make_active(self) -> None:
        """Change the mode in the policy file."""
        path = self.folder / "shop.yaml"
        path.write_text(path.read_text().replace("mode: shadow", "mode: active"))


def autoscaler() -> dict[str, Any]:
    """The manifest of the Cluster Autoscaler that the newcomer runs."""
    flags = (
        "--cloud-provider=clusterapi",
        "--node-group-auto-discovery=clusterapi:namespace=default,clusterName=local",
        "--expander=least-waste",
        "--scale-down-unneeded-time=5m",
        "--skip-nodes-with-system-pods=false",
        "--cordon-node-before-terminating=true",
        "--max-nodes-total=12",
        "--v=4",
    )
    container = {
        "name": "cluster-autoscaler",
        "image": "registry.example/cluster-autoscaler:v1.33.0",
        "command": ["./cluster-autoscaler", *flags],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "cluster-autoscaler"}},
            "template": {
                "metadata": {"labels": {"app": "cluster-autoscaler"}},
                "spec": {"containers": [container]},
            },
        },
    }


DOCTOR = (
    "outscaler doctor --policy shop.yaml --kubeconfig kubeconfig.outscaler --vpc --as-person admin "
    "--only rbac,autoscaler,template,pdb"
)
STEPS = (
    HourStep("outscaler capture my-cluster", "MachineDeployment                2"),
    HourStep("outscaler groups my-cluster > my-cluster/manifest.json", "bounds of Cluster API"),
    HourStep("outscaler plan my-cluster", "Scale up by 1 node in 1 group for 1 pod"),
    HourStep(
        "outscaler import cluster-autoscaler.yaml --name shop > shop.yaml",
        "spec.options.scaleDownUnneededTime",
    ),
    HourStep("outscaler validate --strict shop.yaml", "valid"),
    HourStep("outscaler kubeconfig > kubeconfig.outscaler", "has a private address"),
    # pods/eviction and the rights to Cluster API's objects are missing
    HourStep(DOCTOR, "1 error, 4 warnings", code=1),
    HourStep(DOCTOR, "Next: outscaler apply shop.yaml", Hour.correct),
    HourStep("outscaler apply shop.yaml --wait", "first pass of shop after", Hour.store_secret),
    # the gate wants a week
    HourStep("outscaler shadow shop", "removals by Cluster Autoscaler", Hour.pass_time),
    # Cluster Autoscaler holds its lease
    HourStep(
        "outscaler apply shop.yaml --kubeconfig kubeconfig.outscaler --vpc",
        "mode active: DR07",
        Hour.make_active,
        code=2,
    ),
    HourStep(
        "outscaler apply shop.yaml --kubeconfig kubeconfig.outscaler --vpc",
        "shop: changed, version 2",
        Hour.stop_autoscaler,
    ),
    HourStep("outscaler history shop --limit 8", "batch grew from 1 to 4", Hour.run_active),
    HourStep("outscaler uninstall shop", "nothing is changed"),
    HourStep("outscaler uninstall shop --yes", "version 3 of the policy is archived"),
)


def lacking() -> list[str]:
    """Run the steps and return those that do not show what they should, with what they show."""
    wrong = []
    with _prepared() as hour:
        for step in STEPS:
            if step.action is not None:
                step.action(hour)
            printed = _ran(step, hour.folder)
            if step.says not in printed:
                wrong.append(f"{step.command}: {step.says}\n{printed}")
    return wrong


@contextlib.contextmanager
def _prepared() -> Iterator[Hour]:
    with tempfile.TemporaryDirectory() as name, LocalAws() as aws:
        folder = Path(name)
        hour = Hour(aws, folder)
        with hour.world as world:
            environment = {
                **aws.env,
                "OUTSCALER_TABLE": world.services.table,
                "OUTSCALER_SECRET_PREFIX": "outscaler/",
                "KUBECONFIG": str(folder / "admin"),
                "COLUMNS": "120",
            }
            before = Path.cwd()
            logging.disable(logging.CRITICAL)  # the log of the functions
            with (
                mock.patch.dict(os.environ, environment),
                mock.patch("time.time", world.clock),
                mock.patch("time.sleep", world.step),
            ):
                os.chdir(folder)
                try:
                    hour.begin()
                    yield hour
                finally:
                    os.chdir(before)
                    logging.disable(logging.NOTSET)


def _ran(step: HourStep, folder: Path) -> str:
    """Run one command line, with `> FILE` obeyed, and return what a terminal shows."""
    line, _, target = step.command.partition(" > ")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(shlex.split(line)[1:])
    if code != step.code:
        raise RuntimeError(f"{step.command}: exit {code}\n{err.getvalue()}{out.getvalue()}")
    if target:
        (folder / target).write_text(out.getvalue())
    return err.getvalue() + out.getvalue()
