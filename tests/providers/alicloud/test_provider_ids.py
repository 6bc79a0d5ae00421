"""Both spellings of a providerID; foreign ids are not accepted."""

from __future__ import annotations

from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.alicloud.provider_ids import (
    AlicloudGroupNames,
    handle_of,
    parse,
)
from tests.cases import each_row
from tests.providers.alicloud.emulated import REGION, node

PLAIN, PREFIXED = f"{REGION}.i-1", f"alicloud://{REGION}.i-1"


@each_row(
    ("text", "expected"),
    [
        (PLAIN, (REGION, "i-1")),
        (PREFIXED, (REGION, "i-1")),
        ("cn-hangzhou.i-1.x", (REGION, "i-1.x")),
        ("", None),
        ("i-1", None),
        (".i-1", None),
        ("cn-hangzhou.", None),
        ("alicloud://", None),
        ("aws:///eu-west-1a/i-1", None),
        ("kind://docker/kind/a.b", None),
        ("alicloud://alicloud://cn-hangzhou.i-1", None),
    ],
)
def test_alicloud_provider_ids_are_read_in_both_spellings_and_no_other(
    text: str, expected: tuple[str, str] | None
) -> None:
    assert parse(text) == expected


@each_row("spelling", [PLAIN, PREFIXED])
def test_alicloud_instance_id_is_spelled_like_its_node(spelling: str) -> None:
    names = AlicloudGroupNames([node("a", spelling)], REGION)
    assert names.spell("i-1") == spelling
    assert names.node_of("i-1") is not None


def test_alicloud_unjoined_instance_is_spelled_like_most_nodes() -> None:
    ids = ("alicloud://cn-hangzhou.i-1", "alicloud://cn-hangzhou.i-2", "cn-hangzhou.i-3")
    most = [node(each, each) for each in ids]
    assert AlicloudGroupNames(most, REGION).spell("i-9") == "alicloud://cn-hangzhou.i-9"
    assert AlicloudGroupNames(most[1:], REGION).spell("i-9") == "cn-hangzhou.i-9"
    assert AlicloudGroupNames([], REGION).spell("i-9") == "cn-hangzhou.i-9"


def test_alicloud_empty_and_foreign_provider_ids_match_nothing() -> None:
    names = AlicloudGroupNames(
        [node("a", ""), node("b", "aws:///x/i-1"), node("c", "cn-beijing.i-1")], REGION
    )
    assert names.node_of("i-1") is None
    assert names.spell("i-1") == PLAIN


@each_row(
    ("target", "expected"),
    [
        (RemovalTarget("n", PLAIN, "i-1"), "i-1"),
        (RemovalTarget("n", PREFIXED), "i-1"),
        (RemovalTarget("n", "what"), ""),
        (RemovalTarget("n", ""), ""),
    ],
)
def test_alicloud_target_is_found_by_handle_or_by_id(target: RemovalTarget, expected: str) -> None:
    assert handle_of(target) == expected
