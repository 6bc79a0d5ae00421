"""Prints the resources that Chalice would create for a project, as JSON; run by
infra/aws/deploy/chalice_resources.py.

It runs in a separate process because it imports the project's app.py and chalicelib, which must not
mix with those of the caller. AWS is not called.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from chalice.cli.factory import CLIFactory
from chalice.deploy import models
from chalice.deploy.appgraph import ApplicationGraphBuilder, DependencyBuilder
from chalice.deploy.packager import LambdaDeploymentPackager
from chalice.utils import UI, OSUtils

_FUNCTION = (
    "resource_name",
    "function_name",
    "environment_variables",
    "runtime",
    "handler",
    "tags",
    "timeout",
    "memory_size",
    "security_group_ids",
    "subnet_ids",
    "xray",
    "architecture",
)


def _function(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in _FUNCTION} | {"role": model.role.role_name}


def _source(model: Any) -> dict[str, Any]:
    return {
        "resource_name": model.resource_name,
        "queue": model.queue,
        "batch_size": model.batch_size,
        "maximum_concurrency": model.maximum_concurrency,
        "function": model.lambda_function.resource_name,
    }


# Chalice's model class -> the name of its list in the output, and the fields that are needed.
_TOLD: dict[Any, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    models.ManagedIAMRole: (
        "roles",
        lambda model: {
            "resource_name": model.resource_name,
            "role_name": model.role_name,
            "policy_file": model.policy.filename,
        },
    ),
    models.LambdaFunction: ("functions", _function),
    models.SQSEventSource: ("sources", _source),
    models.ScheduledEvent: (
        "rules",
        lambda model: {
            "resource_name": model.resource_name,
            "rule_name": model.rule_name,
            "function": model.lambda_function.resource_name,
        },
    ),
    models.RestAPI: (
        "apis",
        lambda model: {
            "resource_name": model.resource_name,
            "stage": model.api_gateway_stage,
            "function": model.lambda_function.resource_name,
        },
    ),
    models.LogGroup: (
        "log_groups",
        lambda model: {
            "resource_name": model.resource_name,
            "log_group_name": model.log_group_name,
        },
    ),
}


def main(project: str, stage: str) -> None:
    """Write the resources of a project's stage, and the path where Chalice looks for the
    package, to standard output."""
    factory: Any = CLIFactory(project, environ=os.environ)
    config = factory.create_config_obj(chalice_stage_name=stage)
    graphs: Any = ApplicationGraphBuilder()
    application = graphs.build(config, stage)
    builder: Any = DependencyBuilder()
    graph: dict[str, Any] = {name: [] for name, _ in _TOLD.values()}
    for model in builder.build_dependencies(application):
        if type(model) in _TOLD:
            name, told = _TOLD[type(model)]
            graph[name].append(told(model))
    packager_of: Any = LambdaDeploymentPackager
    osutils: Any = OSUtils
    screen: Any = UI
    packager = packager_of(osutils(), None, screen(), config.lambda_architecture)
    graph["package"] = packager.deployment_package_filename(project, config.lambda_python_version)
    sys.stdout.write(json.dumps(graph))


if __name__ == "__main__":
    main(*sys.argv[1:])
