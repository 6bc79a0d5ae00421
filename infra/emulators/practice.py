"""An AWS account and a cluster to practise on: `python -m infra.emulators.practice`.

    the account    empty at first. What is deployed into it runs: the schedule, the queues and the
                   functions, under Lambda's runtime client and with the rights of their roles
    the cluster    two node groups of Cluster API, with pods that wait for nodes; kubectl works

Time is the real one. Nothing is kept at the end. The functions run the code of this clone, built
for this machine's processor, whatever zip was uploaded. docs/start.md is written for it, and a
test runs that page.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from infra.aws.package import PackagingFailed, package
from infra.aws.wheels import host_architecture
from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.manager import ClusterSimulation, Pace
from infra.emulators.controllers.objects import apply_shipped
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.lambda_runtime.hosted_functions import Ahead, Hosted
from infra.emulators.other_autoscaler import address
from infra.emulators.service_accounts import ServiceAccountTokens
from infra.tools.interruptible import run

CLUSTER = "shop"
TICK = 60.0
"""Seconds between two ticks of the schedule."""
_TURN = 0.5
_CONTROLLERS = 0.2
_AGE = 600
"""Seconds that the cluster has been there at the beginning."""
_log = logging.getLogger(__name__)


class Practice:
    """A context manager. aws: a running account. archive: the functions' zip for this machine.
    place: a folder of its own, which gets the kubeconfig. tick: seconds between two ticks.

    host: the address of this machine at which functions reach the cluster.
    """

    def __init__(
        self, aws: LocalAws, archive: Path, place: Path, host: str, tick: float = TICK
    ) -> None:
        self._aws, self._archive, self._place, self._tick = aws, archive, place, tick
        self._clock = Ahead()
        self.kube = ObjectStore(self._clock)
        apply_shipped(self.kube)
        self._server = ApiServer(self.kube, tls=True, address=host)
        tokens = ServiceAccountTokens(self.kube, self._server.api.authority)
        # what a node offers is what its group's template says, so that the doctor has no finding
        pace = Pace(machines=CapiControllerSettings(reserve={}))
        self._cluster = ClusterSimulation(self.kube, self._clock, pace, more=[tokens])
        self._stop = threading.Event()
        self._stack = ExitStack()
        self._hosted: Hosted | None = None
        self._deployed: tuple[str, ...] = ()
        self._next_tick = 0.0
        self._hosts = 0

    @property
    def kubeconfig(self) -> Path:
        return self._place / "kubeconfig"

    def __enter__(self) -> Practice:
        self._furnish()
        self._stack.enter_context(self._server)
        self.kubeconfig.write_text(self._server.kubeconfig(), "utf-8")
        self._thread(self._cluster.run, self._stop, _CONTROLLERS)
        self._thread(self._run_functions)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._stack.close()
        if self._hosted is not None:
            self._hosted.__exit__(None, None, None)

    def _thread(self, target: Callable[..., object], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._stack.callback(thread.join)

    def _furnish(self) -> None:
        """Fill the cluster, and let the time pass in which its nodes and pods have come."""
        objects.apply(
            self.kube,
            objects.cluster(CLUSTER),
            objects.machine_deployment("workers", 2, 1, 8, cluster=CLUSTER),
            objects.machine_deployment("batch", 1, 0, 4, labels={"pool": "batch"}, cluster=CLUSTER),
            objects.deployment("web", replicas=9, cpu="1500m"),
            _without_a_place(),
        )
        for seconds in range(-_AGE, 0, 5):
            self._clock.seconds = float(seconds)
            self._cluster.step()
        self._clock.seconds = 0.0

    # -- functions

    def _run_functions(self) -> None:
        while not self._stop.wait(_TURN):
            try:
                self._turn()
            except Exception:
                _log.exception("the emulated functions")

    def _turn(self) -> None:
        """Start what is due: the schedule, then messages."""
        hosted = self._current()
        if hosted is None:
            return
        if self._clock() >= self._next_tick:
            self._next_tick = self._clock() + self._tick
            hosted.tick()
        hosted.deliver()

    def _current(self) -> Hosted | None:
        """Return the deployed functions, None where there is no complete deployment. A deployment
        is complete if it has a schedule and is as it was one turn earlier."""
        deployed = self._look()
        if deployed and deployed == self._deployed:
            return self._hosted or self._host()
        self._deployed = deployed
        if self._hosted is not None:
            self._hosted.__exit__(None, None, None)
            self._hosted = None
        return None

    def _look(self) -> tuple[str, ...]:
        """Return what the account has of functions: names and versions; () without a schedule."""
        events = self._aws.client("events")
        rules = events.list_rules()["Rules"]
        if not any(events.list_targets_by_rule(Rule=rule["Name"])["Targets"] for rule in rules):
            return ()
        listed = self._aws.client("lambda").list_functions()["Functions"]
        return tuple(
            sorted(
                f"{one['FunctionName']} {one['CodeSha256']} {one.get('Environment')}"
                for one in listed
            )
        )

    def _host(self) -> Hosted:
        self._hosts += 1
        place = self._place / f"lambda-{self._hosts}"
        place.mkdir()
        self._hosted = Hosted(self._aws, self._archive, place, self._clock).__enter__()
        self._next_tick = 0.0
        return self._hosted


def _without_a_place() -> KubeObject:
    """Return a pod that fits on no node and in no group."""
    requests = {"cpu": "2", "memory": "128Mi"}
    container = {"name": "train", "image": "train", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "ml"},
        "spec": {"nodeSelector": {"gen": "4"}, "containers": [container]},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: serve an account and a cluster until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.emulators.practice",
        description="serve an emulated AWS account whose functions run, and a cluster",
    )
    parser.add_argument(
        "--port", type=int, default=4566, help="of the account, on 127.0.0.1 (4566)"
    )
    given = parser.parse_args(arguments)
    host = address()
    if not host:
        sys.stderr.write("this machine has no address but loopback; connect it to a network\n")
        return 2
    try:
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="practice-")))
            sys.stderr.write("building the functions for this machine\n")
            package("dev", place / "package", host_architecture())
            aws = stack.enter_context(LocalAws(given.port))
            archive = place / "package" / "deployment.zip"
            practice = stack.enter_context(Practice(aws, archive, place, host))
            variables = {**aws.env, "KUBECONFIG": str(practice.kubeconfig)}
            sys.stdout.write("".join(f"export {name}={text}\n" for name, text in variables.items()))
            sys.stdout.flush()
            threading.Event().wait()
    except (OSError, SystemExit):  # werkzeug prints the reason and exits
        sys.stderr.write(f"--port {given.port}: cannot be served; choose another one\n")
        return 2
    except PackagingFailed as failed:
        sys.stderr.write(f"{failed}\n")
        return 2
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    run(main)
