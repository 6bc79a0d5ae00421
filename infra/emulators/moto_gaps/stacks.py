"""Templates for CloudFormation that are in S3, and SAM templates, as `aws cloudformation deploy`
sends them, and stacks by one of their resources.

moto finds a template only at an address of AWS or of `localhost`, does not support the SAM
transform, and finds a stack by its name only. It leaves a gap in lists for AWS::NoValue, and among
a stack's resources for a false condition. It gives a stack no outputs if it was created by a change
set, and treats parameters that keep their values as changed. It reads JSON as YAML, which takes
seconds of CPU for a template of a hundred kilobytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import yaml
from moto.cloudformation import models, parsing, responses
from moto.cloudformation.models import CloudFormationBackend, Stack

from infra.emulators.lambda_events import REGION

_SAM = "AWS::Serverless-2016-10-31"
_BODIES = ("create_stack", "create_change_set", "update_stack")


def transformed(body: str) -> str:
    if _SAM not in body:
        return body
    template: dict[str, Any] = json.loads(body) if body.startswith("{") else yaml.safe_load(body)
    if template.get("Transform") != _SAM:
        return body
    import boto3
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    translator = Translator({}, Parser(), boto_session=boto3.Session(region_name=REGION))
    made: Mapping[str, Any] = translator.translate(template, {})
    return json.dumps(made)


def load_template(text: str, Loader: Any) -> Any:  # noqa: N803 - as of yaml.load
    """Return a template's content as yaml.load does; JSON, which is YAML
    too, by the faster parser."""
    try:
        return json.loads(text)
    except ValueError:
        return yaml.load(text, Loader=Loader)


_YAML_OR_JSON = SimpleNamespace(
    Loader=yaml.Loader, add_multi_constructor=yaml.add_multi_constructor, load=load_template
)
"""What moto uses of the module `yaml`."""


def install() -> None:
    find = original(responses, "get_stack_from_s3_url")

    def get_stack_from_s3_url(template_url: str, account_id: str, partition: str) -> Any:
        parts = urlsplit(template_url)
        # an emulation's address: the bucket is in the path
        if not parts.netloc.endswith("amazonaws.com"):
            template_url = f"https://s3.amazonaws.com{parts.path}"
        return find(template_url, account_id, partition)

    replace(responses, get_stack_from_s3_url=get_stack_from_s3_url)
    for module in (models, responses):
        replace(module, yaml=_YAML_OR_JSON)
    _stack_of_a_resource()
    _lists_without_holes()
    _resources_that_exist()
    _stacks_of_change_sets()
    for name in _BODIES:
        replace(
            CloudFormationBackend, **{name: _with_template(original(CloudFormationBackend, name))}
        )


def _stack_of_a_resource() -> None:
    """Find a stack by the physical id of one of its resources. moto ignores the parameter."""
    describe = original(responses.CloudFormationResponse, "describe_stack_resources")

    def describe_stack_resources(self: Any) -> Any:
        wanted = self._get_param("PhysicalResourceId")
        if wanted and not self._get_param("StackName"):
            stacks = self.cloudformation_backend.stacks.values()
            owner = next((one for one in stacks if _has(one, wanted)), None)
            self.params["StackName"] = owner.stack_id if owner is not None else f"of {wanted}"
        return describe(self)

    replace(responses.CloudFormationResponse, describe_stack_resources=describe_stack_resources)


def _has(stack: Any, wanted: str) -> bool:
    return any(getattr(one, "physical_resource_id", "") == wanted for one in stack.stack_resources)


def _with_template(method: Any) -> Any:
    def changed(self: Any, *arguments: Any, **named: Any) -> Any:
        if named.get("template"):
            named["template"] = transformed(named["template"])
        return method(self, *arguments, **named)

    return changed


def replace(owner: Any, **values: Any) -> None:
    """Set attributes of a class or module of moto for the rest of the process."""
    for name, value in values.items():
        setattr(owner, name, value)


def original(owner: Any, name: str) -> Any:
    """Return the current value of such an attribute; for a class method the plain function."""
    found = getattr(owner, name)
    return getattr(found, "__func__", found) if isinstance(owner, type) else found


def _lists_without_holes() -> None:
    clean = original(parsing, "clean_json")

    def clean_json(resource_json: Any, resources_map: Any) -> Any:
        cleaned = clean(resource_json, resources_map)
        return (
            [each for each in cleaned if each is not None]
            if isinstance(resource_json, list)
            else cleaned
        )

    replace(parsing, clean_json=clean_json)


def _resources_that_exist() -> None:
    listed = original(Stack, "stack_resources").fget

    def stack_resources(self: Any) -> list[Any]:
        return [each for each in listed(self) if each is not None]

    replace(Stack, stack_resources=property(stack_resources))


def _stacks_of_change_sets() -> None:
    execute = original(CloudFormationBackend, "execute_change_set")

    def execute_change_set(self: Any, change_set_name: str, stack_name: str | None = None) -> None:
        execute(self, change_set_name, stack_name)
        for arn, change_set in self.change_sets.items():
            if change_set_name in (arn, change_set.change_set_name):
                stack = change_set.stack
                stack.parameters = change_set.parameters
                stack._parse_template()
                stack.output_map = stack._create_output_map()
                stack.resource_map.input_parameters = dict(stack.resource_map.resolved_parameters)

    replace(CloudFormationBackend, execute_change_set=execute_change_set)
