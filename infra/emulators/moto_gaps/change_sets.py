"""Change sets and AWS::NoValue, as `aws cloudformation deploy` and templates with conditions need them.

moto leaves a gap in lists for AWS::NoValue, and among a stack's resources for a condition that is false. It gives a
stack no outputs if it was created by a change set. It treats parameters that keep their values as changed, and
therefore replaces resources that refer to them.
"""

from __future__ import annotations

from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.models import CloudFormationBackend, Stack

from infra.emulators.moto_gaps.stacks import original, replace


def install() -> None:
    """Replace moto's behaviour."""
    _lists_without_holes()
    _resources_that_exist()
    _stacks_of_change_sets()


def _lists_without_holes() -> None:
    clean = original(parsing, "clean_json")

    def clean_json(resource_json: Any, resources_map: Any) -> Any:
        cleaned = clean(resource_json, resources_map)
        return [each for each in cleaned if each is not None] if isinstance(resource_json, list) else cleaned

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
