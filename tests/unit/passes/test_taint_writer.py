"""Taints written outside of operations: in order, within limits, and with
errors confined to one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED
from chalicelib.model.plan import TaintUpdate
from chalicelib.passes.soft_taints import SOFT_REMOVALS
from infra.emulators.kube.faults import KubeFault
from tests.unit.passes.taint_scene import NOW, MarkingFixture, marking

HARD = {"key": TO_BE_DELETED, "value": str(int(NOW) - 5000), "effect": "NoSchedule"}
SOFT = {"key": DELETION_CANDIDATE, "value": str(int(NOW) - 60), "effect": "PreferNoSchedule"}
NOTE = {"outscaler.dev/operation": "remove-1", "outscaler.dev/cordoned": "true"}


@pytest.fixture
def scene() -> Iterator[MarkingFixture]:
    with marking() as fixture:
        yield fixture


def soften(name: str) -> TaintUpdate:
    return TaintUpdate(name, "soften")


def test_taint_writer_removes_leftover_taint_annotation_and_cordon_at_once(
    scene: MarkingFixture,
) -> None:
    scene.node("n", HARD, SOFT, cordoned=True, **NOTE)
    assert scene.apply(TaintUpdate("n", "cleanup", cordoned=True)) == ["n"]
    assert scene.state("n") == ([DELETION_CANDIDATE], False, {})
    assert scene.writes() == 1


def test_taint_writer_keeps_an_earlier_cordon(scene: MarkingFixture) -> None:
    scene.node("n", HARD, cordoned=True, **{"outscaler.dev/operation": "remove-1"})
    assert scene.apply(TaintUpdate("n", "cleanup")) == ["n"]
    assert scene.state("n") == ([], True, {})


def test_taint_writer_uncordons_a_foreign_leftover_as_upstream_does(scene: MarkingFixture) -> None:
    scene.node("n", HARD, cordoned=True)
    assert scene.apply(TaintUpdate("n", "cleanup", cordoned=True)) == ["n"]
    assert scene.state("n") == ([], False, {})


def test_soft_taint_has_a_timestamp_and_effect_prefer_no_schedule(scene: MarkingFixture) -> None:
    scene.node("n")
    assert scene.apply(soften("n")) == ["n"]
    node = scene.kube.peek("nodes", "n")
    assert node is not None
    assert node["spec"]["taints"] == [
        {"key": DELETION_CANDIDATE, "value": str(int(NOW)), "effect": "PreferNoSchedule"}
    ]
    assert not node["spec"].get("unschedulable")


def test_soft_taints_are_removed_when_the_node_is_needed_again(scene: MarkingFixture) -> None:
    scene.node("n", SOFT, {"key": "dedicated", "value": "db", "effect": "NoSchedule"})
    assert scene.apply(TaintUpdate("n", "unsoften")) == ["n"]
    assert scene.state("n")[0] == ["dedicated"]


def test_soft_taint_is_not_added_to_a_node_whose_removal_has_begun(scene: MarkingFixture) -> None:
    scene.node("n", HARD)
    scene.node("m", HARD, SOFT)
    assert scene.apply(soften("n"), TaintUpdate("m", "unsoften")) == []
    assert scene.writes() == 0


def test_taint_writer_writes_nothing_that_is_already_correct(scene: MarkingFixture) -> None:
    scene.node("n", SOFT)
    scene.node("m")
    assert (
        scene.apply(
            soften("n"),
            TaintUpdate("m", "unsoften"),
            TaintUpdate("m", "cleanup"),
            TaintUpdate("gone", "cleanup"),
        )
        == []
    )
    assert scene.writes() == 0


def test_taint_writer_without_updates_makes_no_calls(scene: MarkingFixture) -> None:
    before = len(scene.server.requests)
    assert scene.apply() == []
    assert len(scene.server.requests) == before


def test_taint_writer_limits_the_number_of_soft_taints_but_not_stale_ones(
    scene: MarkingFixture,
) -> None:
    for number in range(6):
        scene.node(f"hard-{number}", HARD)
        scene.node(f"soft-{number}")
    marks = [TaintUpdate(f"hard-{n}", "cleanup") for n in range(6)] + [
        soften(f"soft-{n}") for n in range(6)
    ]
    assert scene.apply(*marks, max_bulk_soft_taint_count=2) == [
        *(f"hard-{n}" for n in range(6)),
        "soft-0",
        "soft-1",
    ]


def test_taint_writer_limits_the_time_for_soft_taints(
    scene: MarkingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        scene.node(f"n-{number}")
    read = scene.api.read

    def slow(*args: Any, **kwargs: Any) -> Any:
        scene.clock.advance(1.0)
        return read(*args, **kwargs)

    monkeypatch.setattr(scene.api, "read", slow)
    assert scene.apply(*(soften(f"n-{n}") for n in range(6)), max_bulk_soft_taint_time=3.0) == [
        "n-0",
        "n-1",
        "n-2",
    ]


def test_disabled_soft_taints_are_removed_in_batches(scene: MarkingFixture) -> None:
    names = [f"n-{n:02}" for n in range(SOFT_REMOVALS + 3)]
    for name in names:
        scene.node(name, SOFT)
    assert (
        scene.apply(*(TaintUpdate(name, "unsoften") for name in names), max_bulk_soft_taint_count=0)
        == names[:SOFT_REMOVALS]
    )


def test_taint_writer_error_of_one_node_does_not_affect_others(scene: MarkingFixture) -> None:
    scene.node("a", HARD)
    scene.node("b", HARD)
    scene.server.faults.add(KubeFault(method="PATCH", path="/api/v1/nodes/a", status=422, times=9))
    assert scene.apply(TaintUpdate("a", "cleanup"), TaintUpdate("b", "cleanup")) == ["b"]


def test_taint_writer_stops_after_three_refusals_of_the_cluster(scene: MarkingFixture) -> None:
    for name in ("a", "b", "c", "d", "e"):
        scene.node(name)
    scene.server.faults.add(KubeFault(method="PATCH", path="/api/v1/nodes/", status=403, times=9))
    assert scene.apply(*(soften(name) for name in "abcde")) == []
    assert scene.writes() == 3


def test_taint_writer_refusal_for_one_node_delays_no_other(scene: MarkingFixture) -> None:
    """An admission webhook can cause that."""
    for name in ("a", "b", "c"):
        scene.node(name)
    scene.server.faults.add(KubeFault(method="PATCH", path="/api/v1/nodes/a", status=403, times=9))
    assert scene.apply(soften("a"), soften("b"), soften("c")) == ["b", "c"]
