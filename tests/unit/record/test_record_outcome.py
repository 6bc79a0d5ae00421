from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.model.operation import Kind, State, Target
from chalicelib.model.outcome import Done, Failed
from chalicelib.record.events import not_triggered, triggered
from chalicelib.record.record import record_marked, record_outcome
from tests.unit.record.support import NOW, Scene, ended, refused


def told(scene: Scene) -> list[tuple[str, str, str, str]]:
    return [(event.name, event.reason, event.type, event.message) for event in scene.wall.posted]


def test_a_growth_is_told_to_its_pods_as_upstream_does() -> None:
    scene = Scene()
    grown = ended(Kind.GROW, from_size=1, to_size=3, pods=("a/p", "a/q"))
    record_outcome(grown, Done({"from": 1, "to": 3}), scene.recorder, NOW, largest=5)
    words = "pod triggered scale-up: [{g 1->3 (max: 5)}]"
    assert told(scene) == [("p", "TriggeredScaleUp", "Normal", words), ("q", "TriggeredScaleUp", "Normal", words)]


def test_an_unknown_maximum_is_left_out() -> None:
    assert triggered("g", 1, 3, None) == "pod triggered scale-up: [{g 1->3}]"


def test_a_failed_growth_has_an_entry_with_class_and_code_and_no_event() -> None:
    scene = Scene()
    failed = Failed("OutOfStock", "none left", code="STOCK")
    record_outcome(ended(Kind.GROW, State.FAILED, pods=("a/p",)), failed, scene.recorder, NOW)
    facts = scene.journal.entries[0].facts
    assert (facts["state"], facts["class"], facts["code"], facts["message"], facts["seconds"]) == (
        "failed", "OutOfStock", "STOCK", "none left", 30.0)
    assert told(scene) == []
    line = json.loads(scene.lines[0])
    assert (line["cluster_autoscaler_failed_scale_ups_total"], line["reason"]) == (1, "STOCK")
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["cluster", "node_group"]]


@pytest.mark.parametrize(
    ("evict", "words"),
    [(("a/p",), "failed to drain and delete node"), ((), "failed to delete empty node")],
)
def test_a_failed_removal_is_a_warning_on_the_node(evict: tuple[str, ...], words: str) -> None:
    scene = Scene()
    operation = ended(Kind.REMOVE, State.FAILED, targets=(Target("n1", "i-1", evict=evict),))
    record_outcome(operation, Failed("EvictionBlocked", "pod a/p cannot be evicted"), scene.recorder, NOW)
    assert told(scene) == [("n1", "ScaleDownFailed", "Warning", f"{words}: pod a/p cannot be evicted")]
    assert scene.lines == []


def test_of_several_nodes_each_is_told_its_own_end() -> None:
    scene = Scene()
    operation = ended(Kind.REMOVE, targets=(Target("n1", "i-1"), Target("n2", "i-2")))
    record_outcome(operation, Done({"removed": 1, "nodes": "n1", "kept n2": "pod a/p holds it"}), scene.recorder, NOW)
    assert told(scene) == [
        ("n1", "ScaleDown", "Normal", "nodes removed by cluster autoscaler"),
        ("n2", "ScaleDownFailed", "Warning", "failed to delete empty node: pod a/p holds it"),
    ]
    assert json.loads(scene.lines[0])["cluster_autoscaler_scaled_down_nodes_total"] == 1


def test_a_marked_node_is_told() -> None:
    scene = Scene()
    record_marked(ended(Kind.REMOVE, State.WAITING, targets=(Target("n1", "i-1"),)), scene.recorder, NOW)
    assert told(scene) == [("n1", "ScaleDown", "Normal", "marked the node as toBeDeleted/unschedulable")]


@pytest.mark.parametrize("kind", [Kind.SHRINK, Kind.DISCARD])
def test_corrections_are_for_the_journal_only(kind: Kind) -> None:
    scene = Scene()
    record_outcome(ended(kind, to_size=1), Done({"to": 1}), scene.recorder, NOW)
    assert (len(scene.journal.entries), told(scene), scene.lines) == (1, [], [])


@pytest.mark.parametrize("events", [None, "wall"])
def test_a_cluster_that_is_not_to_be_touched_gets_no_event(events: Any) -> None:
    scene = Scene(**({"events": None} if events is None else {}))
    record_outcome(ended(Kind.GROW, pods=("a/p",)), Done(), scene.recorder, NOW)
    assert len(scene.wall.posted) == (0 if events is None else 1)


def test_equally_frequent_reasons_are_in_a_fixed_order() -> None:
    words = not_triggered(refused("a/p"), lambda reason: reason.code.value)
    assert words == "pod didn't trigger scale-up: 1 Insufficient, 1 MaxNodeGroupSizeReached"
