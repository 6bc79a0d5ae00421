"""The quicker way to an answer gives the values that moto's own way gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from moto.core.serialize import AttributePickerContext, JSONSerializer, XFormedAttributePicker
from moto.core.utils import get_service_model

from infra.emulators.moto_gaps import close


def members(shape: Any) -> Iterator[tuple[str, Any]]:
    """The members of a shape and of the shapes in it, as the serializer visits them."""
    ahead, seen = [shape], set()
    while ahead:
        shape = ahead.pop()
        if shape.type_name == "list":
            ahead.append(shape.member)
        elif shape.type_name == "map":
            ahead.append(shape.value)
        elif shape.type_name == "structure" and shape.name not in seen:
            seen.add(shape.name)
            for key, member in shape.members.items():
                member.parent = shape
                yield key, member
                ahead.append(member)


@pytest.mark.parametrize("service", ["dynamodb", "sqs", "ssm", "lambda", "iam"])
def test_value_of_every_member_is_the_one_that_moto_picks(service: str) -> None:
    close()
    picker, compared = XFormedAttributePicker(), 0
    model = get_service_model(service)
    for name in model.operation_names:
        operation = model.operation_model(name)
        serializer = JSONSerializer(operation, value_picker=picker)
        output = operation.output_shape
        for key, shape in members(output) if output is not None else ():
            names = list(picker.get_possible_keys(AttributePickerContext({}, key, shape)))
            for first in range(len(names) + 1):
                value = {word: word for word in reversed(names[first:])}
                expected = picker(AttributePickerContext(value, key, shape))
                assert serializer.get_value(value, key, shape) == expected
                compared += 1
    assert compared > 100
