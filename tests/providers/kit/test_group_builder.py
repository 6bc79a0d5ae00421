"""What the vendors' builders of node groups share: gaps, states of instances, placeholders."""

from __future__ import annotations

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.providers.kit.group_builder import (
    MOST_PLACEHOLDERS,
    GroupBuilder,
    instance_state,
    placeholder_group,
    placeholder_handle,
    placeholders,
)
from tests.cases import each_row

SOLD_OUT = InstanceError("OutOfStock", "none-left", "there are none")


def test_gap_names_the_entry_of_its_group_or_the_settings() -> None:
    builder = GroupBuilder("vendor")
    builder.warn("g", "odd")
    builder.warn("", "odder")
    builder.warn_of_denied("Price", "")
    builder.warn_of_denied("Price", "the key may not")
    assert [(gap.kind, gap.name, gap.place, gap.detail) for gap in builder.gaps] == [
        ("NodeGroup", "g", "spec.nodeGroups[provider=vendor, id=g]", "odd"),
        ("NodeGroup", "", "spec.providers.vendor", "odder"),
        (
            "Price",
            "",
            "spec.providers.vendor.readPrices",
            "the key may not; grant it, or write readPrices: false",
        ),
    ]


@each_row(
    ("reported", "is_node", "state"),
    [
        (InstanceState.CREATING, False, InstanceState.CREATING),
        (InstanceState.CREATING, True, InstanceState.RUNNING),
        (InstanceState.RUNNING, False, InstanceState.RUNNING),
        (InstanceState.DELETING, True, InstanceState.DELETING),
    ],
)
def test_instance_that_is_a_node_has_been_created(
    reported: InstanceState, is_node: bool, state: InstanceState
) -> None:
    assert instance_state(reported, is_node=is_node) is state


def test_placeholder_handle_contains_its_group() -> None:
    assert placeholder_group(placeholder_handle("asg-bp1-x", 12)) == "asg-bp1-x"
    assert placeholder_group("i-1") is None


def test_missing_machine_has_a_placeholder_up_to_a_number() -> None:
    def handle_of(number: int) -> str:
        return placeholder_handle("g", number)

    assert placeholders(2, SOLD_OUT, handle_of, lambda handle: f"vendor://{handle}") == (
        Instance(
            "vendor://placeholder-g-0",
            InstanceState.CREATING,
            SOLD_OUT,
            handle="placeholder-g-0",
        ),
        Instance(
            "vendor://placeholder-g-1",
            InstanceState.CREATING,
            SOLD_OUT,
            handle="placeholder-g-1",
        ),
    )
    many = placeholders(MOST_PLACEHOLDERS + 1, SOLD_OUT, handle_of)
    assert len(many) == MOST_PLACEHOLDERS
    assert many[-1].id == many[-1].handle
