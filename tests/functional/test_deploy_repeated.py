"""`make deploy` gives the same account however often it runs and wherever it was interrupted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.model.errors import OutscalerError
from infra.aws.package import PackagingFailed
from infra.emulators.aws import LocalAws
from tests.functional.deployments import SERVICES, account, cut_after, deploy, small_package

REQUESTS = 260  # approximate number of requests of a first deployment
POINTS = sorted(random.Random(14).sample(range(3, REQUESTS), 3))


class DeployRepeatedLocation:
    """An emulated account that the environment points at, and a folder for the build."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self.aws, self.folder, self.package = aws, folder, small_package(folder)
        self.clients = {service: aws.client(service) for service in SERVICES}

    def deploy(self) -> list[Any]:
        return deploy(self.package, self.folder / "built")

    def account(self) -> Any:
        return account(self.clients)

    def apis(self) -> list[str]:
        return [one["id"] for one in self.clients["apigateway"].get_rest_apis()["items"]]


class RepeatedDeployment(NamedTuple):
    """The account after one undisturbed deployment, and after a second one. apis: ids of
    the REST APIs after each."""

    first: Any
    second: Any
    apis: tuple[list[str], list[str]]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> RepeatedDeployment:
    """The second deployment has nothing that Chalice recorded in the first one."""
    with LocalAws() as aws, pytest.MonkeyPatch.context() as patched:
        aws.reset()
        for name, value in aws.env.items():
            patched.setenv(name, value)
        place = DeployRepeatedLocation(aws, tmp_path_factory.mktemp("repeated"))
        assert place.deploy() == []
        first, apis = place.account(), place.apis()
        shutil.rmtree(place.folder / "built")
        assert place.deploy() == []
        return RepeatedDeployment(first, place.account(), (apis, place.apis()))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeployRepeatedLocation]:
    with LocalAws() as aws:
        aws.reset()
        for name, value in {**aws.env, "AWS_MAX_ATTEMPTS": "1"}.items():
            monkeypatch.setenv(name, value)
        yield DeployRepeatedLocation(aws, tmp_path)


def test_second_deployment_from_another_machine_changes_nothing(
    repeated: RepeatedDeployment,
) -> None:
    assert repeated.second == repeated.first
    assert repeated.apis[0] == repeated.apis[1] != []


def _interrupted(place: DeployRepeatedLocation, requests: int) -> None:
    """Start a deployment whose connection is cut permanently after that many requests."""
    with (
        cut_after(place.aws.endpoint, requests) as endpoint,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises((OutscalerError, PackagingFailed, BotoCoreError, ClientError)):
            place.deploy()


def test_deployment_interrupted_three_times_is_continued(
    place: DeployRepeatedLocation, repeated: RepeatedDeployment
) -> None:
    assert len(POINTS) == 3
    for requests in POINTS:
        _interrupted(place, requests)
    assert place.deploy() == []
    assert place.account() == repeated.first


@pytest.mark.slow
@pytest.mark.parametrize("requests", [*POINTS, *range(1, REQUESTS, 7)])
def test_interrupted_deployment_is_continued(
    place: DeployRepeatedLocation, requests: int, repeated: RepeatedDeployment
) -> None:
    _interrupted(place, requests)
    assert place.deploy() == []
    assert place.account() == repeated.first
