"""A setting is declared once: what its field says is what a document, its
reference and its struct have."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import pytest

from chalicelib.policy.diagnostics import Diagnostics, Scalar
from chalicelib.policy.document import SPEC
from chalicelib.policy.providers import PROVIDERS
from chalicelib.policy.schema import Field, Required, built, fields_of, read_section, section_of
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import PROVIDER_NAMES, GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.managed_pools import (
    ManagedPool,
    MaxShare,
    PoolLimits,
    Requirements,
)
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.notifications import NoticeWebhook, Notifications, QuietHours
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.policy.settings.spot import Spot
from chalicelib.policy.value_types import whole
from chalicelib.policy.yaml_document import read

SECTIONS: tuple[type[msgspec.Struct], ...] = (
    Consolidation,
    DisruptionBudget,
    GroupPolicy,
    Headroom,
    KubernetesAccess,
    ManagedPool,
    MaxDisruption,
    MaxShare,
    NodeLifecycle,
    NodePrices,
    NoticeWebhook,
    Notifications,
    PoolLimits,
    QuietHours,
    RepairRule,
    Requirements,
    ScaleUp,
    Schedule,
    Spot,
    Webhook,
    Window,
)
by_section = pytest.mark.parametrize("struct", SECTIONS, ids=lambda struct: struct.__name__)


class Shelf(msgspec.Struct, frozen=True, rename="camel"):
    """A section of its own."""

    document_order: ClassVar = ("maxBooks", "minBooks", "label")

    min_books: Annotated[int, whole(), "Fewest books."] = 0
    max_books: Annotated[int, whole(1, 9), "Most books; no limit if not given."] = 0
    label: Annotated[int, whole(), "Its number.", Required("label: 7")] = 3
    full: bool = False


def field(key: str) -> Field:
    return next(each for each in fields_of(Shelf) if each.key == key)


def test_a_field_without_a_kind_is_no_key() -> None:
    assert [each.key for each in fields_of(Shelf)] == ["minBooks", "maxBooks", "label"]


def test_a_section_has_the_order_of_the_document() -> None:
    assert [each.key for each in section_of(Shelf).fields] == ["maxBooks", "minBooks", "label"]


def test_the_text_of_a_default_is_made_of_the_value() -> None:
    assert field("minBooks").default_text == "0"


def test_a_default_that_no_document_can_state_has_no_text() -> None:
    assert field("maxBooks").default_text == ""


def test_a_key_may_be_required_though_its_struct_has_a_default() -> None:
    assert field("label").required
    assert field("label").missing == ("is missing", "add label: 7")


def test_a_valid_section_builds_its_struct() -> None:
    diagnostics = Diagnostics("shelf.yaml")
    values = read_section(
        section_of(Shelf), read("{maxBooks: 4, label: 2}", place="shelf.yaml"), (), diagnostics
    )
    assert values is not None
    assert built(section_of(Shelf), values) == Shelf(max_books=4, label=2)


@by_section
def test_every_field_of_a_section_is_a_key(struct: type[msgspec.Struct]) -> None:
    retired = {each.attribute for each in getattr(struct, "retired", ())}
    keys = {each.attribute for each in section_of(struct).fields}
    assert keys - retired == set(struct.__struct_fields__)
    assert retired <= keys, "a retired key is still accepted"


def _read_back(each: Field) -> object:
    node = Scalar(each.default_text, plain=True, line=1, column=1)
    return each.kind.build(each.kind.read(node, (each.key,), Diagnostics("policy.yaml")))


def test_a_default_text_reads_back_to_the_default() -> None:
    stated = [each for one in SECTIONS for each in fields_of(one) if each.default_text]
    assert len(stated) > 40
    assert {each.key for each in stated if _read_back(each) != each.default} == set()


def test_every_option_in_force_is_declared() -> None:
    assert len(fields_of(Options)) == len(Options.__struct_fields__)


def test_every_section_of_spec_is_a_field_of_the_policy() -> None:
    inner = {"name", "version", "pauses", "own_minimums"}
    assert {each.attribute for each in SPEC.fields} == set(Policy.__struct_fields__) - inner


def test_the_names_of_providers_are_those_with_settings() -> None:
    assert tuple(PROVIDERS) == PROVIDER_NAMES
