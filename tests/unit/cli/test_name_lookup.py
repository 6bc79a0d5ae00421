"""Lookup of names as users type them."""

from __future__ import annotations

import pytest

from chalicelib.cli.arguments import named, namespaced, near
from chalicelib.model.errors import BadInput
from tests.cases import each_row

PODS = {
    name: name
    for name in ("shop/web-1", "shop/web-2", "data/web-1", "shop/api-77fd-x", "shop/checkout")
}


def test_name_lookup_prefers_exact_names_and_accepts_a_unique_bare_name() -> None:
    assert namespaced("shop/web-1", PODS, "here", "pod") == "shop/web-1"
    assert namespaced("checkout", PODS, "here", "pod") == "shop/checkout"
    assert named("shop/web-2", PODS, "here", "pod") == "shop/web-2"


def test_name_lookup_refuses_a_bare_name_in_two_namespaces_and_lists_both() -> None:
    with pytest.raises(
        BadInput, match="'web-1' is in 2 namespaces; write one of data/web-1, shop/web-1"
    ):
        namespaced("web-1", PODS, "here", "pod")


@each_row(
    ("typed", "meant"),
    [
        ("web", ["data/web-1", "shop/web-1", "shop/web-2"]),  # a prefix: a workload's name
        ("shop/web", ["shop/web-1", "shop/web-2"]),
        ("77fd", ["shop/api-77fd-x"]),  # a substring
        ("chekcout", ["shop/checkout"]),  # a typing error
        ("data/checkout", ["shop/checkout"]),  # the wrong namespace
        ("shop/chekcout", ["shop/checkout"]),
        ("zzzzzz", []),
    ],
)
def test_name_lookup_suggests_the_nearest_names(typed: str, meant: list[str]) -> None:
    assert near(typed, PODS) == meant


def test_name_lookup_truncates_many_suggestions() -> None:
    many = {f"shop/web-{at}": at for at in range(100)}
    with pytest.raises(BadInput) as refusal:
        named("shop/web", many, "here", "pod")
    assert str(refusal.value).endswith("shop/web-11, shop/web-12 and 95 more?")


def test_name_lookup_reports_that_nothing_exists() -> None:
    with pytest.raises(BadInput, match="there is no node at all"):
        named("n", {}, "here", "node")
