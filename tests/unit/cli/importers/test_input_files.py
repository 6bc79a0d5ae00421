"""Contents of imported files: add-ons and objects in every wrapper, and invalid input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cli.migrate.cce_policy import sort_documents
from chalicelib.model.errors import BadInput
from tests.cases import each_row

CUSTOM = {"maxNodesTotal": 5}
ADDON = {
    "kind": "Addon",
    "spec": {"addonTemplateName": "autoscaler", "clusterID": "c1", "values": {"custom": CUSTOM}},
}
OTHER = {
    "kind": "Addon",
    "spec": {"addonTemplateName": "coredns", "values": {"custom": {"maxNodesTotal": 9}}},
}
RULES = {
    "apiVersion": "autoscaling.cce.io/v1alpha1",
    "kind": "HorizontalNodeAutoscaler",
    "metadata": {"name": "a"},
}


@each_row(
    "held",
    [
        ADDON,
        [ADDON],
        {"kind": "Addon", "apiVersion": "v3", "items": [OTHER, ADDON]},
        {"items": [ADDON]},
        {"kind": "List", "items": [ADDON, OTHER]},
        {"custom": CUSTOM},
        {"values": {"custom": CUSTOM}},
        CUSTOM,
        {"kind": "Addon", "items": [{"spec": ADDON["spec"]}]},
    ],
)
@each_row("write", [json.dumps, lambda held: "# yaml\n" + json.dumps(held) + "\n---\n"])
def test_import_finds_settings_in_every_wrapper(held: Any, write: Any) -> None:
    found = sort_documents({"f": write(held)})
    assert [dict(source.content) for source in found.addons] == [CUSTOM]
    assert (found.objects, found.others) == ((), ())


@each_row("kind", ["HorizontalNodeAutoscaler", "horizontalnodeautoscaler"])
def test_import_finds_supported_objects_and_names_ignored_objects(kind: str) -> None:
    one = {**RULES, "kind": kind}
    listed = {"kind": "HorizontalNodeAutoscalerList", "items": [one]}
    text = "\n---\n".join(
        json.dumps(each) for each in (one, {"kind": "ConfigMap"}, None, listed, {"a": 1}, 5)
    )
    found = sort_documents({"f": text})
    assert [source.content for source in found.objects] == [one, one]
    assert found.others == (
        "f: ConfigMap",
        "f: an object without a kind",
        "f: something that is not an object",
    )


def test_import_list_items_may_take_their_kind_from_the_list() -> None:
    nameless = {"metadata": {"name": "a"}}
    found = sort_documents(
        {"f": json.dumps({"kind": "HorizontalNodeAutoscalerList", "items": [nameless]})}
    )
    assert [source.content["metadata"] for source in found.objects] == [{"name": "a"}]


@each_row(
    ("text", "says"),
    [
        ("", "f: holds no Cluster Autoscaler"),
        ("null", "f: holds no Cluster Autoscaler"),
        ("{}", "f: holds no Cluster Autoscaler"),
        ("just words", "f: holds no Cluster Autoscaler"),
        (json.dumps(OTHER), "f: holds no Cluster Autoscaler"),
        (json.dumps({"kind": "Addon"}), "f: holds no Cluster Autoscaler"),
        ("a: b: c", "f:1: is neither JSON nor YAML (mapping values are not allowed"),
        ("a: [1\nb: 2", "f:2: is neither JSON nor YAML"),
        ("? [a]\n: b", "f:1: is neither JSON nor YAML"),
        ("a: !!python/object:os.system x", "f:1: is neither JSON nor YAML"),
        ("a: \x07", "f: is neither JSON nor YAML"),
        ("[" * 100_000, "f:1: is nested deeper than 100 levels"),
        ("{a: " * 100_000, "f:1: is nested deeper than 100"),
        (
            json.dumps(CUSTOM)[:-1] + ', "a": ' + "[" * 5000 + "]" * 5000 + "}",
            "f:1: is nested deeper than 100 levels",
        ),
        (
            "k0: &k0 [1]\n"
            + "".join(f"k{n}: &k{n} [*k{n - 1}, *k{n - 1}]\n" for n in range(1, 40)),
            "f:17: is more than 200000 values once",
        ),
        ("maxNodesTotal: &a [*a]", "f:1: is an alias inside its own anchor"),
    ],
)
def test_import_refuses_unusable_files_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        sort_documents({"f": text})
    assert str(refused.value).startswith(says)
    assert refused.value.remedy
    assert "\n" not in str(refused.value)
