"""Functions of today write the recorded rows, messages, events, status and
answers, change by change.

`python -m tests.recorded.worlds` says how the recording is made.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.model.operation import OperationKind, OperationState
from tests.recorded import worlds

RECORDED = worlds.recorded()


def test_every_world_has_a_recording() -> None:
    assert set(RECORDED) == set(worlds.WORLDS)


@pytest.mark.parametrize("name", worlds.WORLDS)
def test_a_world_is_played_to_the_recorded_bytes(name: str) -> None:
    recorded, played = RECORDED[name], worlds.play(name)
    for at, (one, other) in enumerate(zip(recorded["written"], played["written"], strict=False)):
        assert one[:3] == other[:3], f"{name}: invocation {at}"
        for key in sorted(one[3].keys() | other[3].keys()):
            assert one[3].get(key) == other[3].get(key), (
                f"{name}: invocation {at} ({one[0]}), row {key}"
            )
    assert recorded["written"] == played["written"]
    for part in ("events", "status", "metrics", "answers"):
        assert recorded[part] == played[part], f"{name}: {part}"


def rows(prefix: str) -> list[dict[str, Any]]:
    return [
        row
        for world in RECORDED.values()
        for _, _, _, changed in world["written"]
        for key, row in changed.items()
        if key.split(" ")[1].startswith(prefix)
    ]


def test_worlds_record_operations_of_the_kinds_and_states_in_which_they_rest() -> None:
    operations = rows("memory#operation#") + rows("operation#")
    assert {row["state"]["S"] for row in operations} == {
        state.value for state in OperationState
    } - {"abandoned"}
    # A shrink is recorded in the table of state.py only: none of these worlds has a size that
    # nothing stands behind, a sick node that is restarted, or a group of a managed pool.
    kinds = {json.loads(row["text"]["S"])["kind"] for row in operations}
    assert kinds == {kind.value for kind in OperationKind} - {"shrink", "restart", "close"}
    providers = {json.loads(row["text"]["S"])["provider"] for row in operations}
    assert providers == {"alicloud", "cherryservers", "clusterapi", "exoscale", "huaweicloud"}
    steps = {row["step"]["S"] for row in operations}
    assert steps >= {"", "request", "poll", "recheck", "delete", "gone", "confirm"}
