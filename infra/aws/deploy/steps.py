"""Runs the steps of a deployment in order and reports each."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chalicelib.cli.first_pass import FirstPass, PassWatch
from chalicelib.model.errors import InputErrors
from chalicelib.model.resource_names import state_table_of
from chalicelib.policy.load import load
from chalicelib.runtime.messages import PROVIDERS
from chalicelib.runtime.mode_guard import permitted
from chalicelib.store import Store
from infra.aws.deploy import (
    account_settings,
    chalice_resources,
    foundation,
    functions,
    gateway,
    log_filters,
    project,
)
from infra.aws.deploy.account_settings import Setting
from infra.aws.deploy.chalice_resources import Graph
from infra.aws.deploy.errors import DeployFailed
from infra.aws.deploy.stage import ROOT, Stage
from infra.aws.deploy.used_providers import providers_in_use
from infra.aws.package import package

Say = Callable[[str], None]
Sleep = Callable[[float], None]

BUILT = Path("build") / "deploy"
_CHALICE = "import sys; from chalice.cli import main; sys.exit(main())"
_REUSED = "Reusing existing deployment package"


class Deployment:
    """Deploys one stage to an account. session: of boto3. say: prints a progress line.
    stopped: the functions whose concurrency a person has set to 0."""

    def __init__(self, stage: Stage, session: Any, say: Say, sleep: Sleep = time.sleep) -> None:
        self.stage, self._session, self._say, self._sleep = stage, session, say, sleep
        self.folder = ROOT / BUILT / stage.name
        self.api = ""
        self.stopped: frozenset[str] = frozenset()

    def deploy(self, built: Path | None = None) -> list[Setting]:
        """Run all steps and return the settings that are still wrong. built: a prebuilt
        package. Raises DeployFailed."""
        with self._alone():
            return self._deploy(built)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder, because two deployments in one folder would
        overwrite each other's files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DeployFailed(
                    f"{self.folder}: another deployment is running here; wait for its end"
                ) from None
            yield

    def _deploy(self, built: Path | None) -> list[Setting]:
        zipped = built or self.package()
        graph = self._project(self.folder / "project", zipped)
        self._say("chalice deploy")
        self._chalice(self.folder / "project")
        self.finish(graph)
        return list(self.check(graph))

    def package(self) -> Path:
        """Build the zip."""
        self._say("package")
        package(self.stage.name, self.folder / "package")
        return self.folder / "package" / "deployment.zip"

    def finish(self, graph: Graph) -> None:
        """Set what Chalice cannot set."""
        self._say("finish")
        for line in account_settings.apply(self._functions(graph), self._sleep):
            self._say(f"  {line}")
        try:
            for line in account_settings.apply(self._gateway(), self._sleep):
                self._say(f"  {line}")
        except gateway.NoAccessLog as error:
            self._say(f"  no access log: {error}")

    def check(self, graph: Graph) -> Iterator[Setting]:
        """Return the settings that are wrong. A missing access log is not reported if the
        account does not permit one."""
        yield from (one for one in self._functions(graph) if not one.right)
        yield from (
            one for one in self._gateway() if not one.right and not one.place.endswith("access log")
        )

    def graph(self) -> Graph:
        """Return the resources that Chalice would create from the sources,
        and the existing REST API."""
        graph = graph_only(self.stage)
        self.api = gateway.find(self.stage, _behind_routes(graph), self._session)
        if not self.api:
            raise DeployFailed(
                f"stage {self.stage.name} is not deployed in {self.stage.region}; run make deploy"
            )
        return graph

    def webhook(self) -> str:
        """Return the URL to which events of a cluster are posted. NAME
        stands for the cluster's name."""
        name = self.stage.config["api_gateway_stage"]
        return (
            f"https://{self.api}.execute-api.{self.stage.region}.{self.stage.suffix}/{name}/"
            "clusters/NAME/events"
        )

    def _project(self, folder: Path, zipped: Path) -> Graph:
        graph = project.copied(self.stage, folder)
        self.stopped = self._stopped(graph)
        if self.stopped:
            self._say(f"  stays stopped (concurrency 0): {', '.join(sorted(self.stopped))}")
            graph = project.copied(self.stage, folder, self.stopped)
        return self._around(graph, folder, zipped)

    def _around(self, graph: Graph, folder: Path, zipped: Path) -> Graph:
        self._say("foundation")
        foundation.apply(self.stage, graph.rules[0].rule_name, self._session, self._sleep)
        self.api = gateway.ensure(self.stage, _behind_routes(graph), self._session)
        self._say("functions")
        for line in functions.prepare(self.stage, graph, zipped, self._session, self._sleep):
            self._say(f"  {line}")
        for line in account_settings.apply(
            account_settings.before_chalice(self.stage, graph, self._in_use(), self._session),
            self._sleep,
        ):
            self._say(f"  {line}")
        self._say("state")
        project.seed(zipped, graph)
        project.remember(
            chalice_resources.deployed(self.stage, graph, self.api, self._session),
            self.stage,
            folder,
        )
        return graph

    def _stopped(self, graph: Graph) -> frozenset[str]:
        """Return the functions whose concurrency a person has set to 0."""
        client = self._session.client("lambda")
        return frozenset(
            name
            for name, arn in chalice_resources.function_arns(graph, client)
            if client.get_function_concurrency(FunctionName=arn).get("ReservedConcurrentExecutions")
            == 0
        )

    def _chalice(self, folder: Path) -> None:
        command = [
            sys.executable,
            "-c",
            _CHALICE,
            "--project-dir",
            str(folder.resolve()),
            "deploy",
            "--stage",
            self.stage.name,
            "--connection-timeout",
            "300",
        ]
        environment = os.environ | {
            "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_DEFAULT_REGION": self.stage.region,
        }
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, cwd=folder
        )
        said = done.stdout + done.stderr
        for line in done.stdout.splitlines():
            self._say(f"  {line}")
        if done.returncode:
            raise DeployFailed(f"chalice deploy failed:\n{_reason(done.stderr)}")
        if _REUSED not in said:
            raise DeployFailed("chalice made a package of its own; make clean, then deploy again")

    def _functions(self, graph: Graph) -> Iterator[Setting]:
        yield from account_settings.settings(self.stage, graph, self._in_use(), self._session)
        yield from log_filters.settings(self.stage, self._session.client("logs"))

    def _gateway(self) -> Iterator[Setting]:
        return gateway.settings(
            self.stage, self.api, self._session.client("apigateway"), self._session.client("logs")
        )

    def _in_use(self) -> frozenset[str]:
        policies = self._store().policies.all_current()
        used = providers_in_use(self.stage, [one.text for one in policies])
        return used & frozenset(PROVIDERS)

    def _store(self) -> Store:
        return Store(
            state_table_of(self.stage.prefix),
            clock=time.time,
            client=self._session.client("dynamodb"),
        )

    def clusters(self) -> list[str]:
        """Return the clusters whose policies let passes plan. A policy that this release cannot
        read is reported, and its cluster left out."""
        names = []
        for stored in self._store().policies.all_current():
            try:
                policy, _ = load(stored.text, place=stored.name)
            except InputErrors as error:
                self._say(f"{stored.name}: its policy cannot be read, so it has no pass: {error}")
                continue
            if permitted(policy).plan:
                names.append(policy.name)
        return names

    def first_passes(self, clusters: Sequence[str]) -> list[FirstPass]:
        """Wait, for a bounded time, for the next pass of each of these clusters. Raises
        StoreError."""
        watch = PassWatch(self._store(), clusters, time.monotonic, self._sleep)
        return list(watch.passes())


def graph_only(stage: Stage) -> Graph:
    """Return the resources that Chalice would create from the sources, for
    commands that deploy nothing."""
    with tempfile.TemporaryDirectory() as folder:
        return project.copied(stage, Path(folder))


def _behind_routes(graph: Graph) -> str:
    """Return the name of the function that serves the REST API."""
    return graph.function(graph.apis[0].function).function_name


def _reason(text: str) -> str:
    """Return Chalice's error message without the preceding traceback."""
    start = text.rfind("ERROR - ")
    return text[start:].strip() if start >= 0 else "\n".join(text.strip().splitlines()[-5:])
