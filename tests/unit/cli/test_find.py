"""Names as people type them."""

from __future__ import annotations

import pytest

from chalicelib.cli.name_lookup import named, namespaced, near
from chalicelib.model.errors import BadInput
from tests.cases import each_row

PODS = {name: name for name in ("shop/web-1", "shop/web-2", "data/web-1", "shop/api-77fd-x", "shop/checkout")}


def test_exact_names_win_and_a_bare_name_will_do_where_there_is_one() -> None:
    assert namespaced("shop/web-1", PODS, "here", "pod") == "shop/web-1"
    assert namespaced("checkout", PODS, "here", "pod") == "shop/checkout"
    assert named("shop/web-2", PODS, "here", "pod") == "shop/web-2"


def test_a_bare_name_in_two_namespaces_is_refused_with_both() -> None:
    with pytest.raises(BadInput, match="'web-1' is in 2 namespaces; write one of data/web-1, shop/web-1"):
        namespaced("web-1", PODS, "here", "pod")


@each_row(
    ("typed", "meant"),
    [
        ("web", ["data/web-1", "shop/web-1", "shop/web-2"]),  # the beginning: a workload's name
        ("shop/web", ["shop/web-1", "shop/web-2"]),
        ("77fd", ["shop/api-77fd-x"]),  # a part
        ("chekcout", ["shop/checkout"]),  # a slip
        ("data/checkout", ["shop/checkout"]),  # the wrong namespace
        ("shop/chekcout", ["shop/checkout"]),
        ("zzzzzz", []),
    ],
)
def test_the_nearest_names(typed: str, meant: list[str]) -> None:
    assert near(typed, PODS) == meant


def test_many_names_are_cut_short() -> None:
    many = {f"shop/web-{at}": at for at in range(100)}
    with pytest.raises(BadInput) as refusal:
        named("shop/web", many, "here", "pod")
    assert str(refusal.value).endswith("shop/web-11, shop/web-12 and 95 more?")


def test_nothing_at_all_is_said_too() -> None:
    with pytest.raises(BadInput, match="there is no node at all"):
        named("n", {}, "here", "node")
