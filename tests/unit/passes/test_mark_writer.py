"""Marks of nodes that leave are written last, paced, in order, and over several passes; memory
notes them, and they are taken back (docs/reference/consolidation.md "Marks")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from chalicelib.cluster import errors
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import DELETION_CANDIDATE, LEAVING_MARKS, TO_BE_DELETED, Taint
from chalicelib.model.plan import TaintUpdate
from chalicelib.passes import soft_taints
from chalicelib.passes.soft_taints import CLEANING, MARKS_A_SECOND, apply
from chalicelib.policy.settings.cluster_options import Options
from infra.emulators.kube.faults import KubeFault
from tests import builders
from tests.unit.passes.taint_scene import MarkingFixture, marking

FIRST, SECOND, _ = LEAVING_MARKS
HARD = {"key": TO_BE_DELETED, "value": "1795240654", "effect": "NoSchedule"}
SOFT = {"key": DELETION_CANDIDATE, "value": "1795245594", "effect": "PreferNoSchedule"}
ANSWER = 0.2
"""Seconds for which a slow server thinks about each request."""


@pytest.fixture
def scene() -> Iterator[MarkingFixture]:
    with marking() as fixture:
        yield fixture


def mark(name: str, level: int = 1, value: str = "h1") -> TaintUpdate:
    return TaintUpdate(name, "mark", level=level, value=value)


def as_taint(key: str, value: str = "h1", effect: str = "PreferNoSchedule") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def taints(scene: MarkingFixture, name: str) -> list[dict[str, str]]:
    node = scene.kube.peek("nodes", name)
    assert node is not None
    listed: list[dict[str, str]] = node["spec"].get("taints") or []
    return listed


def nodes(scene: MarkingFixture, count: int) -> list[str]:
    names = [f"n-{number:03d}" for number in range(count)]
    for name in names:
        scene.node(name)
    return names


def marked(scene: MarkingFixture, names: Sequence[str]) -> list[str]:
    return [name for name in names if taints(scene, name)]


def refuse(scene: MarkingFixture, name: str, status: int = 403, times: int = -1) -> None:
    path = f"/api/v1/nodes/{name}"
    scene.server.faults.add(KubeFault(method="PATCH", path=path, status=status, times=times))


class _Patches:
    """The instants of all writes. answer: seconds that the server takes for each answer."""

    def __init__(
        self, scene: MarkingFixture, monkeypatch: pytest.MonkeyPatch, answer: float = 0.0
    ) -> None:
        self.instants: list[float] = []
        read, request = scene.api.read, scene.api.request

        def slow_read(*args: Any, **kwargs: Any) -> Any:
            scene.clock.advance(answer)
            return read(*args, **kwargs)

        def slow_request(*args: Any, **kwargs: Any) -> Any:
            self.instants.append(scene.clock())
            scene.clock.advance(answer)
            return request(*args, **kwargs)

        monkeypatch.setattr(scene.api, "read", slow_read)
        monkeypatch.setattr(scene.api, "request", slow_request)

    def most_in_a_second(self) -> int:
        """The largest number of writes within one second."""
        return max(
            sum(begin <= instant < begin + 0.999 for instant in self.instants)
            for begin in self.instants
        )


@pytest.mark.parametrize(
    ("before", "level", "after"),
    [
        ([], 2, [as_taint(FIRST), as_taint(SECOND)]),
        ([as_taint(FIRST, "h0"), as_taint(SECOND, "h0")], 1, [as_taint(FIRST)]),
        ([as_taint(SECOND)], 1, [as_taint(FIRST)]),
        ([as_taint(FIRST)], 0, []),
        ([SOFT, as_taint(FIRST)], 0, [SOFT]),
        ([as_taint(FIRST, "x", "NoSchedule")], 1,
         [as_taint(FIRST, "x", "NoSchedule"), as_taint(FIRST)]),
        ([as_taint(FIRST, "x", "NoExecute"), as_taint(FIRST)], 0,
         [as_taint(FIRST, "x", "NoExecute")]),
    ],
)  # fmt: skip
def test_a_node_has_exactly_its_marks_after_one_write(
    scene: MarkingFixture, before: list[dict[str, str]], level: int, after: list[dict[str, str]]
) -> None:
    scene.node("n", *before)
    assert scene.apply(mark("n", level)) == ["n"]
    assert taints(scene, "n") == after
    assert scene.writes() == 1
    assert scene.apply(mark("n", level)) == []
    assert scene.writes() == 1, "nothing to change"


def test_a_node_whose_removal_has_begun_gets_no_mark(scene: MarkingFixture) -> None:
    scene.node("n", HARD)
    scene.node("m", HARD, as_taint(FIRST))
    assert scene.apply(mark("n"), mark("m", 0)) == []
    assert scene.writes() == 0


def test_marks_are_written_last_and_in_the_order_of_the_plan(scene: MarkingFixture) -> None:
    for name in ("a", "b", "c", "d"):
        scene.node(name)
    scene.node("e", HARD)
    updates = (mark("c"), mark("a"), TaintUpdate("b", "soften"), TaintUpdate("e", "cleanup"))
    assert scene.apply(*updates, mark("b")) == ["e", "b", "c", "a", "b"]


def test_the_limit_of_soft_taints_is_none_of_marks(scene: MarkingFixture) -> None:
    names = nodes(scene, 15)
    updates = [mark(name) for name in names]
    assert scene.apply(*updates, max_bulk_soft_taint_count=1) == names


def test_marks_are_at_most_20_a_second_and_end_after_15_seconds(
    scene: MarkingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = nodes(scene, 310)
    patches = _Patches(scene, monkeypatch)
    began = scene.clock()
    written = scene.apply(*(mark(name) for name in names))
    assert written == names[: len(written)]
    assert len(written) >= 0.99 * CLEANING * MARKS_A_SECOND
    assert scene.clock() - began <= CLEANING + 1 / MARKS_A_SECOND
    assert patches.most_in_a_second() == MARKS_A_SECOND


def test_steer_23_740_marks_at_a_slow_server_take_several_passes(
    scene: MarkingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = nodes(scene, 740)
    patches = _Patches(scene, monkeypatch, ANSWER)
    passes: list[float] = []
    left = names
    while left and len(passes) < 40:
        began = scene.clock()
        written = scene.apply(*(mark(name) for name in left))
        assert written == left[: len(written)]
        passes.append(scene.clock() - began)
        left = left[len(written) :]
        scene.clock.advance(60.0)
    assert marked(scene, names) == names
    assert max(passes) <= CLEANING + 2 * ANSWER + 1 / MARKS_A_SECOND
    assert patches.most_in_a_second() <= MARKS_A_SECOND
    assert scene.writes() == 740, "each node was written once"


class _Killed(BaseException):
    pass


def test_steer_2_the_pass_after_a_killed_one_marks_the_rest(scene: MarkingFixture) -> None:
    names = nodes(scene, 40)
    pauses = 0

    def killed_after_half(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 20:
            raise _Killed

    updates = [mark(name) for name in names]
    with pytest.raises(_Killed):
        apply(updates, scene.api, Options(), scene.clock, killed_after_half)
    assert marked(scene, names) == names[:20]
    assert scene.apply(*updates) == names[20:]
    assert scene.writes() == 40


@pytest.mark.parametrize("status", [403, 422])
def test_steer_2_nodes_that_refuse_their_mark_stop_no_other(
    scene: MarkingFixture, status: int
) -> None:
    names = nodes(scene, 40)
    refusing = ("n-000", "n-001", "n-017")
    for name in refusing:
        refuse(scene, name, status)
    expected = [name for name in names if name not in refusing]
    assert scene.apply(*(mark(name) for name in names)) == expected


def test_a_group_of_nodes_that_refuse_stops_no_mark_after_the_first(scene: MarkingFixture) -> None:
    names = nodes(scene, 30)
    refuse(scene, "n-01[0-9]")
    refuse(scene, "n-00[5-9]")
    assert scene.apply(*(mark(name) for name in names)) == [*names[:5], *names[20:]]


def test_marks_end_if_the_first_ten_are_refused(scene: MarkingFixture) -> None:
    names = nodes(scene, 30)
    refuse(scene, "")
    assert scene.apply(*(mark(name) for name in names)) == []
    assert scene.writes() == 10


def test_marks_end_where_the_credential_is_refused(scene: MarkingFixture) -> None:
    names = nodes(scene, 10)
    refuse(scene, "n-004", 401)
    assert scene.apply(*(mark(name) for name in names)) == names[:4]


def test_refused_soft_taints_do_not_stop_marks(scene: MarkingFixture) -> None:
    names = nodes(scene, 8)
    refuse(scene, "n-00[0-3]")
    soft = [TaintUpdate(name, "soften") for name in names[:4]]
    assert scene.apply(*soft, *(mark(name) for name in names[4:])) == names[4:]


def test_a_mark_on_a_node_that_has_just_changed_is_written_again(scene: MarkingFixture) -> None:
    nodes(scene, 2)
    refuse(scene, "n-000", 409, times=2)
    assert scene.apply(mark("n-000"), mark("n-001")) == ["n-000", "n-001"]
    assert taints(scene, "n-000") == [as_taint(FIRST)]


def test_a_node_that_is_gone_stops_no_mark(scene: MarkingFixture) -> None:
    nodes(scene, 1)
    assert scene.apply(mark("gone"), mark("n-000")) == ["n-000"]


def test_steer_8_a_stripped_mark_is_written_once_in_a_pass(scene: MarkingFixture) -> None:
    names = nodes(scene, 5)
    for number in range(1, 4):
        for name in names:
            node = scene.kube.get("nodes", name)
            assert node is not None
            scene.kube.update("nodes", {**node, "spec": {}})
        assert scene.apply(*(mark(name) for name in names)) == names
        assert scene.writes() == 5 * number


def test_steer_20_levels_are_keys_beside_the_soft_taint_of_another(scene: MarkingFixture) -> None:
    other = as_taint("example.com/spot", "true")
    scene.node("goes", other)
    scene.node("stays", other)
    assert scene.apply(mark("goes", 2), mark("stays", 1)) == ["goes", "stays"]
    assert taints(scene, "goes") == [other, as_taint(FIRST), as_taint(SECOND)]
    assert taints(scene, "stays") == [other, as_taint(FIRST)]


# -- notes


def noted(
    memory: Memory, updates: Sequence[TaintUpdate], present: dict[str, list[Taint]]
) -> dict[str, tuple[bool, bool]]:
    listed = [builders.node(name, taints=found) for name, found in present.items()]
    after = soft_taints.noted(Memory(), memory, updates, listed, Options())
    return {name: (node.soft_tainted, node.marked) for name, node in after.nodes.items()}


MARK = Taint(FIRST, "PreferNoSchedule", "h1")


def test_nodes_with_marks_and_nodes_about_to_get_some_are_noted() -> None:
    present = {
        "has": [MARK],
        "loses": [Taint(SECOND, "PreferNoSchedule")],
        "none": [],
        "gets": [],
        "foreign": [Taint(FIRST, "NoSchedule")],
    }
    updates = [mark("loses", 0), mark("gets", 2)]
    marked_only = (False, True)
    assert noted(Memory(), updates, present) == dict.fromkeys(("gets", "has", "loses"), marked_only)


def test_a_note_of_a_mark_goes_with_the_mark() -> None:
    memory = Memory(nodes={"n": NodeMemory(marked=True, soft_tainted=True), "m": NodeMemory()})
    soft = Taint(DELETION_CANDIDATE, "PreferNoSchedule", "1")
    assert noted(memory, [], {"n": [soft], "m": [soft, MARK]}) == {
        "n": (True, False),
        "m": (False, True),
    }


def test_notes_stay_in_a_pass_that_does_not_act_until_marks_are_gone() -> None:
    memory = Memory(nodes={"a": NodeMemory(marked=True), "b": NodeMemory(soft_tainted=True)})
    same = soft_taints.still_noted(Memory(), memory)
    assert same.nodes == memory.nodes
    assert soft_taints.noted_nodes(same) == {"a", "b"}
    rest = soft_taints.without_notes(same, ["a"])
    assert rest.nodes == {"b": NodeMemory(soft_tainted=True)}
    timed = msgspec.structs.replace(
        memory, nodes={"a": NodeMemory(marked=True, unneeded_since=5.0)}
    )
    assert soft_taints.without_notes(timed, ["a"]).nodes == {"a": NodeMemory(unneeded_since=5.0)}


# -- taking back


def take_back(scene: MarkingFixture, memory: Memory) -> list[str]:
    return list(soft_taints.take_back(memory, scene.api, scene.clock, scene.clock.advance, "shop"))


def test_steer_7_only_what_is_noted_is_taken_back(scene: MarkingFixture) -> None:
    for name in ("both", "marked", "soft"):
        scene.node(name, SOFT, as_taint(FIRST), as_taint(FIRST, "x", "NoExecute"))
    scene.node("removed", HARD, as_taint(FIRST))
    memory = Memory(
        nodes={
            "both": NodeMemory(soft_tainted=True, marked=True),
            "marked": NodeMemory(marked=True),
            "soft": NodeMemory(soft_tainted=True),
            "removed": NodeMemory(marked=True),
            "gone": NodeMemory(marked=True),
            "timer": NodeMemory(unneeded_since=1.0),
        }
    )
    assert take_back(scene, memory) == ["both", "gone", "marked", "removed", "soft"]
    foreign = as_taint(FIRST, "x", "NoExecute")
    assert taints(scene, "both") == [foreign]
    assert taints(scene, "marked") == [SOFT, foreign]
    assert taints(scene, "soft") == [as_taint(FIRST), foreign]
    assert taints(scene, "removed") == [HARD]


def test_marks_are_taken_back_20_a_second_for_15_seconds(
    scene: MarkingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n-{number:03d}" for number in range(310)]
    for name in names:
        scene.node(name, as_taint(FIRST))
    patches = _Patches(scene, monkeypatch)
    memory = Memory(nodes={name: NodeMemory(marked=True) for name in names})
    done = take_back(scene, memory)
    assert done == names[: len(done)]
    assert 0.99 * CLEANING * MARKS_A_SECOND <= len(done) < 310
    assert patches.most_in_a_second() == MARKS_A_SECOND
    assert take_back(scene, soft_taints.without_notes(memory, done)) == names[len(done) :]
    assert marked(scene, names) == []


def test_taking_back_ends_at_a_node_that_cannot_be_changed(scene: MarkingFixture) -> None:
    scene.node("a", as_taint(FIRST))
    scene.node("b", as_taint(FIRST))
    refuse(scene, "b")
    memory = Memory(nodes={name: NodeMemory(marked=True) for name in "ab"})
    done = soft_taints.take_back(memory, scene.api, scene.clock, scene.clock.advance, "shop")
    assert next(done) == "a"
    with pytest.raises(errors.Forbidden):
        next(done)
