"""Answers as moto writes them, in half the time.

For each member of an answer moto derives the names that a value may have in the object which a
service returned: nine tenths of the time of a DynamoDB query, whose items are unions of ten
members. The names for a dict depend on the shape alone. Also, moto lists the methods of a service's
class for every request.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from moto.core import responses
from moto.core.serialize import (
    AttributePicker,
    AttributePickerContext,
    ResponseSerializer,
)

from infra.emulators.moto_gaps.stacks import original, replace

_NAMES = "_names_in_a_dict"
_PATHS = ("a name is a path to the value",)


def install() -> None:
    picked = ResponseSerializer.get_value

    def get_value(self: Any, value: Any, key: str, shape: Any) -> Any:
        picker = self._value_picker
        if type(value) is not dict or not isinstance(picker, AttributePicker):
            return picked(self, value, key, shape)
        names = vars(shape).get(_NAMES) or _names(picker, key, shape)
        if picker.response_transformers or names is _PATHS:
            return picked(self, value, key, shape)
        for name in names:
            if name in value:
                return value[name]
        return None

    replace(ResponseSerializer, get_value=get_value)
    listed = original(responses, "method_names_from_class")
    replace(responses, method_names_from_class=cache(listed))


def _names(picker: AttributePicker, key: str, shape: Any) -> tuple[str, ...]:
    """The names of a shape's value in a dict, by rank; kept in the shape once its parent, on which
    they depend, is known."""
    context = AttributePickerContext({}, key, shape)
    names = tuple(dict.fromkeys(picker.get_possible_keys(context)))
    if any("." in name for name in names):
        names = _PATHS
    if hasattr(shape, "parent"):
        setattr(shape, _NAMES, names)
    return names
