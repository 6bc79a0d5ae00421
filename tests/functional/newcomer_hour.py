"""The hour of a newcomer on the emulation, as a page: `python -m
tests.functional.newcomer_hour > docs/newcomer.md`.

Each command of the page is run as written, against an emulated Kubernetes cluster with a Cluster
Autoscaler at work and an emulated AWS account. The page shows what it printed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shlex
import sys
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
_CHANGING = (
    (re.compile(r"\d\.\d{3} s\b"), "0.010 s"),
    (re.compile(r"#[0-9a-f]{32}#"), "#63782e3fa2bce32eadb88abd587fb7f4#"),
    (re.compile(r"decision [0-9a-f]{16}"), "decision 729bb72febc58dc5"),
    (re.compile(r"https://127\.0\.0\.1:\d+"), "https://10.0.0.1:6443"),
)


class HourStep(msgspec.Struct, frozen=True):
    """One step. text: why; command: as typed, or empty; action: what other people and programs do
    before it; code: the expected exit code."""

    text: str
    command: str = ""
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
    HourStep(
        "`capture` saves the cluster of the current kubeconfig. Nothing is written to it.",
        "outscaler capture my-cluster",
    ),
    HourStep(
        (
            "`groups` drafts the node groups from the saved nodes and the bounds of Cluster API's "
            "objects."
        ),
        "outscaler groups my-cluster > my-cluster/manifest.json",
    ),
    HourStep("The plan: what Outscaler would do now.", "outscaler plan my-cluster"),
    HourStep(
        (
            "The settings of the present autoscaler become a policy. Each word of its manifest is "
            "in the report."
        ),
        "outscaler import cluster-autoscaler.yaml --name shop > shop.yaml",
    ),
    HourStep("The policy is valid.", "outscaler validate --strict shop.yaml"),
    HourStep(
        "The functions use a service account, whose kubeconfig is made from its token.",
        "outscaler kubeconfig > kubeconfig.outscaler",
    ),
    HourStep(
        "The doctor asks for every right, and finds that some are missing. It ends with exit code "
        "1 for an error; in "
        "mode `shadow` rights to change are warnings.",
        DOCTOR,
        code=1,
    ),
    HourStep(
        "After `outscaler manifests rbac rbac-capi | kubectl apply -f -` the rights are there. "
        "The newcomer also writes `reservedCpu: 100m` and `reservedMemory: 512Mi` into the "
        "policy, because the kubelet of these nodes takes so much (DR15). Cluster Autoscaler is "
        "still at work, which "
        "is no error in mode `shadow`.",
        DOCTOR,
        Hour.correct,
    ),
    HourStep(
        (
            "The kubeconfig is stored as the parameter `/outscaler/shop/kubeconfig` of SSM, and "
            "the policy is applied."
        ),
        "outscaler apply shop.yaml",
        Hour.store_secret,
    ),
    HourStep(
        "An hour later, with more and fewer pods in between: what Cluster Autoscaler did, and "
        "what Outscaler would "
        "have done. For a decision the gate wants a week.",
        "outscaler shadow shop",
        Hour.pass_time,
    ),
    HourStep(
        (
            "The newcomer writes `mode: active` into the policy. It is refused while Cluster "
            "Autoscaler holds its lease."
        ),
        "outscaler apply shop.yaml --kubeconfig kubeconfig.outscaler --vpc",
        Hour.make_active,
        code=2,
    ),
    HourStep(
        (
            "`kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0`, three "
            "minutes, and the same again."
        ),
        "outscaler apply shop.yaml --kubeconfig kubeconfig.outscaler --vpc",
        Hour.stop_autoscaler,
    ),
    HourStep(
        "A quarter of an hour in mode `active`, with more pods and then fewer:",
        "outscaler history shop --limit 8",
        Hour.run_active,
    ),
    HourStep("What an uninstall would remove from the cluster:", "outscaler uninstall shop"),
    HourStep("The uninstall itself:", "outscaler uninstall shop --yes"),
)


def transcript(steps: tuple[HourStep, ...] = STEPS) -> str:
    """Run the steps and return the page."""
    lines = [_HEAD]
    with _prepared() as hour:
        for step in steps:
            if step.action is not None:
                step.action(hour)
            lines.append(f"\n{_wrapped(step.text)}\n")
            if step.command:
                lines.append(f"\n```sh\n{step.command}\n```\n")
                said = _ran(step, hour.folder)
                lines.append(f"\n```\n{said}```\n" if said.strip() else "")
    return "".join(lines)


_HEAD = """# A newcomer's hour

Each command below was run as written on the [local emulation](local.md): a Kubernetes cluster with Cluster API, a
Cluster Autoscaler at work in it, and an AWS account. `make docs` makes the page again, and a test compares it with the
commands.
"""


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
    err = io.StringIO()
    out = io.StringIO() if target else err  # a terminal shows both streams
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(shlex.split(line)[1:])
    if code != step.code:
        raise RuntimeError(f"{step.command}: exit {code}\n{err.getvalue()}")
    if target:
        (folder / target).write_text(out.getvalue())
    text = err.getvalue()
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return "".join(f"{each.rstrip()}\n" for each in text.strip("\n").splitlines())


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, width=118, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(transcript())
