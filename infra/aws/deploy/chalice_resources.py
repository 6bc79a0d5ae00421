"""Asks Chalice for the names and settings of the resources it deploys.

Chalice's naming rules are not repeated here, because a second copy could be wrong after the next release of Chalice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from infra.aws.package import PackagingFailed

_SCRIPT = Path(__file__).with_name("chalice_graph.py")


class Role(msgspec.Struct, frozen=True):
    """policy_file: the file with the role's policy, as Chalice reads it."""

    resource_name: str
    role_name: str
    policy_file: str


class ChaliceFunction(msgspec.Struct, frozen=True):
    """One function with the settings that Chalice gives it. role: the name of its role."""

    resource_name: str
    function_name: str
    environment_variables: dict[str, str]
    runtime: str
    handler: str
    tags: dict[str, str]
    timeout: int
    memory_size: int
    security_group_ids: list[str]
    subnet_ids: list[str]
    xray: bool | None
    architecture: str
    role: str


class ChaliceEventSource(msgspec.Struct, frozen=True):
    """A queue that triggers a function. queue: its SQS name. function: resource name of the function."""

    resource_name: str
    queue: str
    batch_size: int
    maximum_concurrency: int
    function: str


class ChaliceRule(msgspec.Struct, frozen=True):
    """A schedule that triggers a function."""

    resource_name: str
    rule_name: str
    function: str


class ChaliceApi(msgspec.Struct, frozen=True):
    """The REST API. stage: of API Gateway, the first part of every path."""

    resource_name: str
    stage: str
    function: str


class LogGroup(msgspec.Struct, frozen=True):
    """A log group that Chalice creates to set its retention."""

    resource_name: str
    log_group_name: str


class Graph(msgspec.Struct, frozen=True):
    """Everything that Chalice deploys for one stage. package: the file in which it looks for a prebuilt zip."""

    roles: tuple[Role, ...]
    functions: tuple[ChaliceFunction, ...]
    sources: tuple[ChaliceEventSource, ...]
    rules: tuple[ChaliceRule, ...]
    apis: tuple[ChaliceApi, ...]
    log_groups: tuple[LogGroup, ...]
    package: str

    def function(self, resource_name: str) -> ChaliceFunction:
        """Return the function with that resource name."""
        return next(one for one in self.functions if one.resource_name == resource_name)


def graph_of(project: Path, stage: str) -> Graph:
    """Read a project with Chalice. Raises PackagingFailed with Chalice's message."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command: list[Any] = [sys.executable, str(_SCRIPT), str(project.resolve()), stage]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=project)
    if done.returncode:
        raise PackagingFailed(f"chalice cannot read {project}:\n{done.stderr}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Graph)
