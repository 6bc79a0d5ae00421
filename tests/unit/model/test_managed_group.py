"""Names and marks of groups that Outscaler makes itself."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from chalicelib.model.managed_group import (
    MachineChoice,
    ManagedGroup,
    declaration_in,
    declaration_in_name,
    is_own_mark,
    short_declaration,
)

CLUSTER = "7f1c0c1e-8a3e-4c7b-9b0e-2f6d1a5b9c11"
CHOICE = MachineChoice("general", "standard.medium", "ch-gva-2", "on-demand")
GROUP = ManagedGroup(CLUSTER, CHOICE, {"diskSize": 50})


def of(declaration: str) -> ManagedGroup:
    """Return the group of another declaration."""
    choice = msgspec.structs.replace(CHOICE, declaration=declaration)
    return msgspec.structs.replace(GROUP, choice=choice)


def test_pool_31_name_follows_from_the_definition() -> None:
    larger = msgspec.structs.replace(GROUP, definition={"diskSize": 100})
    longer = of("batch-workers-of-team-one")
    assert GROUP.name == "osc-c5f524-general-bc37acc1c6"
    assert larger.name == "osc-c5f524-general-2243d4dbeb"
    assert longer.name == "osc-c5f524-batch-workers-of-e47c1f124d"
    assert len(longer.name) == 38


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("declaration", "generic"),
        ("instance_type", "standard.large"),
        ("zone", "de-fra-1"),
        ("market", "spot"),
    ],
)
def test_groups_of_other_machines_have_other_names_and_marks(field: str, value: str) -> None:
    choice = msgspec.structs.replace(CHOICE, **{field: value})
    assert_different(msgspec.structs.replace(GROUP, choice=choice))


@pytest.mark.parametrize(
    ("field", "value"), [("cluster", "another"), ("definition", {"diskSize": 51})]
)
def test_other_clusters_and_definitions_have_other_names_and_marks(field: str, value: Any) -> None:
    assert_different(msgspec.structs.replace(GROUP, **{field: value}))


def assert_different(other: ManagedGroup) -> None:
    """Assert that a group has another digest, name and mark than GROUP."""
    assert other.digest != GROUP.digest
    assert other.name != GROUP.name
    assert other.mark != GROUP.mark


def test_order_of_keys_in_a_definition_does_not_count() -> None:
    one = msgspec.structs.replace(GROUP, definition={"a": 1, "b": {"c": "é", "d": [1, 2]}})
    other = msgspec.structs.replace(GROUP, definition={"b": {"d": [1, 2], "c": "é"}, "a": 1})
    assert one.name == other.name


@pytest.mark.parametrize("declaration", ["a", "x" * 30, "ends-with-dashes-----z"])
def test_names_and_marks_have_forms_that_every_vendor_takes(declaration: str) -> None:
    group = of(declaration)
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,36}[a-z0-9])", group.name)
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])", group.mark)


@pytest.mark.parametrize("declaration", ["general", "batch-workers-of-team-one"])
def test_a_mark_is_own_only_with_the_name_and_the_cluster_it_was_made_for(declaration: str) -> None:
    group = of(declaration)
    assert is_own_mark(CLUSTER, group.name, group.mark)
    assert declaration_in(group.mark) == declaration[:16].rstrip("-")
    assert not is_own_mark("another", group.name, group.mark)
    assert not is_own_mark(CLUSTER, f"{group.name}x", group.mark)
    assert not is_own_mark(CLUSTER, group.name, "")
    assert not is_own_mark(CLUSTER, group.name, f"{group.mark}\n")
    assert declaration_in("team=a") == ""


@pytest.mark.parametrize("declaration", ["general", "batch-workers-of-team-one", "a-b"])
def test_name_of_a_group_says_its_declaration(declaration: str) -> None:
    assert declaration_in_name(of(declaration).name) == short_declaration(declaration)


@pytest.mark.parametrize(
    "name", ["", "general", "osc-", "osc-c5f524-general", f"{GROUP.name}0", f"a{GROUP.name}"]
)
def test_other_names_say_no_declaration(name: str) -> None:
    assert declaration_in_name(name) == ""
