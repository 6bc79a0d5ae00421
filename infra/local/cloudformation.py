"""moto's CloudFormation, so that it takes the project's templates as CloudFormation takes them.

moto leaves a hole where a list has AWS::NoValue, knows no SAM transform, gives a stack that a change set made no
outputs, takes parameters that keep their values for changed ones, and fails at resource types that it cannot make. What
it cannot make is left out here: the REST API, whose resources moto makes differently, and mappings, with which moto
would take messages and run functions itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto.cloudformation import parsing
from moto.cloudformation.models import CloudFormationBackend

from infra.aws.check import translate

#: Types by the beginning of their names.
NOT_HERE = ("AWS::ApiGateway", "AWS::Lambda::EventSourceMapping", "AWS::Lambda::EventInvokeConfig",
            "AWS::Lambda::Permission", "AWS::SQS::QueuePolicy", "AWS::CloudWatch::Alarm")

Json = dict[str, Any]


@contextmanager
def emulated_cloudformation() -> Iterator[None]:
    """While this lasts, every emulated account of the process makes stacks of the project's templates."""
    makers: dict[str, Any] = {name: _with_template(getattr(CloudFormationBackend, name))
              for name in ("create_stack", "create_change_set", "update_stack")}
    makers["execute_change_set"] = _kept_in_mind(CloudFormationBackend.execute_change_set)
    with patch.multiple(CloudFormationBackend, **makers), patch.object(parsing, "clean_json", _without_holes):
        yield


def makeable(body: str) -> str:
    """The template, a JSON text, with what moto cannot make left out, and what refers to it."""
    template = json.loads(body)
    if "Transform" in template:
        template = translate(template)
    kept = {name: one for name, one in template["Resources"].items() if not one["Type"].startswith(NOT_HERE)}
    gone = template["Resources"].keys() - kept.keys()
    outputs = {name: one for name, one in template.get("Outputs", {}).items() if not _names(one["Value"], gone)}
    return json.dumps(template | {"Resources": kept, "Outputs": outputs})


def _names(value: Json, logical: set[str]) -> bool:
    text = json.dumps(value)
    return any(f'"{name}"' in text or f"${{{name}}}" in text for name in logical)


def _with_template(maker: Callable[..., Any]) -> Callable[..., Any]:
    def made(self: CloudFormationBackend, *args: Any, **given: Any) -> Any:
        if given.get("template"):
            given["template"] = makeable(given["template"])
        return maker(self, *args, **given)

    return made


def _kept_in_mind(execute: Callable[..., Any]) -> Callable[..., Any]:
    def executed(self: CloudFormationBackend, change_set_name: str, stack_name: str | None = None) -> None:
        [change_set] = [one for name, one in self.change_sets.items()
                        if change_set_name in (name, one.change_set_name)]
        execute(self, change_set_name, stack_name)
        stack = change_set.stack
        stack.parameters = change_set.parameters
        stack._parse_template()
        stack.output_map = stack._create_output_map()
        stack.resource_map.input_parameters = dict(stack.resource_map.resolved_parameters)

    return executed


_clean_json = parsing.clean_json


def _without_holes(value: Any, resources: Any) -> Any:
    cleaned = _clean_json(value, resources)
    return [each for each in cleaned if each is not None] if isinstance(value, list) else cleaned
