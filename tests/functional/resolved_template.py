"""Resolves a template as CloudFormation does with given parameters: conditions are evaluated
and removed parts omitted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

Template = dict[str, Any]

VPC = {
    "SubnetIds": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
    "SecurityGroupIds": "sg-0123456789abcdef0",
}
#: : Values that enable every optional part.
EVERYTHING = VPC | {
    "KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/12345678-1234-1234-1234-123456789012",
    "AlarmTopicArn": "arn:aws:sns:us-east-1:123456789012:alarms",
    "Dashboard": "on",
    "DecisionsDays": "30",
    "HostedPage": "on",
    "Tracing": "on",
    "Reserve": "on",
}

_GONE = object()


def resolve(template: Template, **given: str) -> Template:
    """The template with values for some parameters and the defaults of the others."""
    values: dict[str, Any] = {
        name: one.get("Default", "") for name, one in template["Parameters"].items()
    }
    assert given.keys() <= values.keys()
    for name, text in (values | given).items():
        listed = template["Parameters"][name]["Type"] == "CommaDelimitedList"
        values[name] = text.split(",") if listed else text
    return _Resolver(template.get("Conditions", {}), values).template(template)


class _Resolver:
    def __init__(self, conditions: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self._conditions, self._values = conditions, values

    def template(self, template: Template) -> Template:
        kept = {
            name: one
            for name, one in template["Resources"].items()
            if "Condition" not in one or self._holds(one["Condition"])
        }
        resolved: Template = {
            "Resources": {
                name: self._value({key: value for key, value in one.items() if key != "Condition"})
                for name, one in kept.items()
            }
        }
        resolved["Outputs"] = self._value(
            {
                name: {key: value for key, value in one.items() if key != "Condition"}
                for name, one in template.get("Outputs", {}).items()
                if "Condition" not in one or self._holds(one["Condition"])
            }
        )
        return resolved

    def _holds(self, name: str) -> bool:
        held = self._value(self._conditions[name])
        assert isinstance(held, bool), name
        return held

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [each for each in map(self._value, value) if each is not _GONE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            [(function, argument)] = value.items()
            if function in self._FUNCTIONS:
                return self._FUNCTIONS[function](self, argument)
        resolved = {key: self._value(each) for key, each in value.items()}
        return {key: each for key, each in resolved.items() if each is not _GONE}

    def _ref(self, name: str) -> Any:
        return _GONE if name == "AWS::NoValue" else self._values.get(name, {"Ref": name})

    def _if(self, argument: list[Any]) -> Any:
        condition, yes, no = argument
        return self._value(yes if self._holds(condition) else no)

    def _sub(self, argument: Any) -> Any:
        text, more = (argument, {}) if isinstance(argument, str) else argument
        own = self._value(more)
        given = self._values | own
        texts = {
            name: value.get("Fn::Sub") if isinstance(value, dict) else value
            for name, value in given.items()
        }
        names = {name: str(value) for name, value in texts.items() if isinstance(value, str | int)}
        made = re.sub(r"\$\{([^}!]+)\}", lambda found: names.get(found[1], found[0]), text)
        left = {name: value for name, value in own.items() if name not in names}
        return made if "${" not in made else {"Fn::Sub": [made, left] if left else made}

    def _equals(self, argument: list[Any]) -> bool:
        one, other = map(self._value, argument)
        return bool(str(one) == str(other))

    def _join(self, argument: list[Any]) -> Any:
        between, parts = argument
        found = self._value(parts)
        return (
            between.join(found)
            if all(isinstance(each, str) for each in found)
            else {"Fn::Join": [between, found]}
        )

    _FUNCTIONS: ClassVar[dict[str, Callable[[_Resolver, Any], Any]]] = {
        "Ref": _ref,
        "Fn::If": _if,
        "Fn::Sub": _sub,
        "Fn::Equals": _equals,
        "Fn::Join": _join,
        "Condition": _holds,
        "Fn::Not": lambda self, argument: not self._value(argument[0]),
        "Fn::Or": lambda self, argument: any(self._value(each) for each in argument),
        "Fn::And": lambda self, argument: all(self._value(each) for each in argument),
    }
