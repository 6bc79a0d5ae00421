"""The other autoscaler's acts start the cool-downs that ours would have started, and
removals that it gives up.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.node import Taint
from chalicelib.shadow.other_status import OtherStatus
from chalicelib.shadow.records import ShadowVerdict
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.unit.shadow.passes import MINUTE, ShadowPasses, hard, status


def fleet(
    *,
    grown: int = 0,
    grown_at: float = 5.0,
    gone: bool = False,
    taint: Taint | None = None,
    extra: int = 0,
) -> ClusterBuilder:
    """Group `w` with a full node and an empty one, w-1; group `other` with a full node and `grown`
    further full ones. extra: further empty nodes of `w`."""
    built = cluster().node("w-0", "2", group="w").running("w-0", 1, "1500m", name="keeps")
    if not gone:
        built.node("w-1", "2", group="w", taints=(taint,) if taint else ())
    for number in range(extra):
        built.node(f"w-{number + 2}", "2", group="w")
    for number in range(grown + 1):
        built.node(
            f"o-{number}", "2", group="other", created=NOW + grown_at * MINUTE if number else 0.0
        )
        built.running(
            f"o-{number}",
            1,
            "1800m",
            name=f"full-{number}",
            created=NOW + (grown_at - 0.5) * MINUTE,
        )
    built.group("w", template=node("template-w", "2"))
    return built.group("other", template=node("template-o", "2"))


def growth_status(minute: float, *, grown: bool) -> OtherStatus:
    return status(minute, *(("other",) if grown else ()), changed=5.0, candidates=1)


def removals(shadow: ShadowPasses) -> list[ShadowVerdict]:
    return [match.verdict for match in shadow.matches if match.kind == "removal"]


@pytest.mark.parametrize("local", [False, True])
def test_removal_after_the_cool_down_of_a_growth_is_the_same(local: bool) -> None:
    shadow = ShadowPasses(scale_down_delay_type_local=local)
    # The node is unneeded for 10 minutes at minute 10. The cool-down after the growth ends at
    # minute 15; with local ones the growth of the other group holds no node of this one.
    end = 11 if local else 15
    for minute in range(end):
        shadow.look(fleet(grown=minute >= 5), minute, growth_status(minute, grown=minute >= 5))
    for minute in (end, end + 1):
        shadow.look(fleet(grown=1, gone=True), minute, growth_status(minute, grown=True))
    assert removals(shadow) == [ShadowVerdict.SAME]


def test_node_that_both_keep_in_their_cool_downs_is_not_only_ours() -> None:
    shadow = ShadowPasses()
    grown = 0
    for minute in range(70):
        changed = 8.0 * (minute // 8)
        grown = minute // 8
        built = fleet()
        for number in range(1, grown + 1):
            built.node(f"o-{number}", "2", group="other2", created=NOW + 8 * number * MINUTE)
            built.running(
                f"o-{number}",
                1,
                "1800m",
                name=f"f-{number}",
                created=NOW + (8 * number - 0.5) * MINUTE,
            )
        built.group("other2", template=node("template-2", "2"))
        shadow.look(built, minute, status(minute, "other2", changed=changed, candidates=1))
    assert removals(shadow) == []


def test_growth_of_a_person_starts_no_cool_down() -> None:
    shadow = ShadowPasses()
    for minute in range(8):
        shadow.look(fleet(grown=minute >= 5), minute, status(minute, candidates=1))
    assert shadow.memory.last_scale_up == 0.0
    assert shadow.memory.groups["other"].last_add == 0.0


def test_growth_that_is_confirmed_by_a_later_status_starts_its_cool_down() -> None:
    shadow = ShadowPasses()
    for minute in range(8):
        shadow.look(fleet(grown=minute >= 5), minute, growth_status(minute, grown=minute >= 6))
    assert shadow.memory.last_scale_up == NOW + 5 * MINUTE
    assert shadow.memory.groups["other"].last_add == NOW + 5 * MINUTE
    assert shadow.memory.groups["w"].last_add == 0.0


def test_growth_starts_its_cool_down_where_the_status_cannot_be_read() -> None:
    shadow = ShadowPasses()
    for minute in range(8):
        shadow.look(fleet(grown=minute >= 5), minute)
    assert shadow.memory.last_scale_up == NOW + 5 * MINUTE


def test_growth_while_the_other_autoscaler_is_not_running_starts_no_cool_down() -> None:
    shadow = ShadowPasses()
    for minute in range(8):
        shadow.look(fleet(grown=minute >= 5), minute, status(minute - 10, "other", changed=5.0))
    assert shadow.memory.last_scale_up == 0.0


@pytest.mark.parametrize("tainted", [True, False])
def test_removal_starts_the_cool_down_of_removals_when_the_node_is_gone(tainted: bool) -> None:
    shadow = ShadowPasses(scale_down_delay_after_delete=600.0)
    for minute in range(10):
        shadow.look(fleet(extra=1), minute, status(minute, candidates=1))
    if tainted:
        shadow.look(fleet(extra=1, taint=hard(9.5)), 10, status(10, candidates=1))
        assert shadow.memory.last_scale_down == 0.0
    for minute in range(11, 20):
        shadow.look(fleet(extra=1, gone=True), minute, status(minute, candidates=1))
    assert shadow.memory.last_scale_down == NOW + 11 * MINUTE
    assert shadow.memory.groups["w"].last_delete == NOW + 11 * MINUTE
    assert shadow.ledger is not None
    assert "w-2" not in shadow.ledger.planned or shadow.ledger.planned["w-2"] < NOW + 11 * MINUTE


def test_removal_that_the_other_autoscaler_gave_up_does_not_count() -> None:
    shadow = ShadowPasses()
    for minute in range(10):
        shadow.look(fleet(), minute, status(minute, candidates=1))
    for minute in (10, 11):
        shadow.look(fleet(taint=hard(9.5)), minute, status(minute))
    for minute in range(12, 24):
        shadow.look(fleet(), minute, status(minute, candidates=1))
    assert shadow.matches == ()
    assert (
        shadow.memory.last_scale_down_failure
        == shadow.memory.groups["w"].last_failure
        == NOW + 12 * MINUTE
    )
    shadow.look(fleet(taint=hard(23.5)), 24, status(24))
    assert shadow.matches == ()
    shadow.look(fleet(gone=True), 25, status(25))
    assert removals(shadow) == [ShadowVerdict.SAME]


def test_node_that_is_removed_for_long_is_not_only_ours_meanwhile() -> None:
    shadow = ShadowPasses()
    for minute in range(12):
        shadow.look(fleet(), minute, status(minute, candidates=1))
    for minute in range(12, 60):
        shadow.look(fleet(taint=hard(11.5)), minute, status(minute))
    shadow.look(fleet(gone=True), 60, status(60))
    assert removals(shadow) == [ShadowVerdict.SAME]


@pytest.mark.parametrize(
    ("options", "minutes", "verdict", "detail"),
    [
        (
            {},
            18,
            ShadowVerdict.EARLIER,
            "Outscaler's plan removed it 7m before, at 2027-01-15T08:11:00Z",
        ),
        (
            {},
            4,
            ShadowVerdict.LATER,
            "Outscaler removes it 6m later: it was unneeded for 4m of 10m",
        ),
        (
            {"scale_down_unneeded_time": 360.0, "scale_down_delay_after_add": 1200.0},
            10,
            ShadowVerdict.LATER,
            "Outscaler removes it 15m later: a cool-down ends at 2027-01-15T08:25:00Z",
        ),
    ],
)
def test_removals_say_by_how_much_and_why(
    options: dict[str, Any], minutes: int, verdict: ShadowVerdict, detail: str
) -> None:
    shadow = ShadowPasses(**options)
    held = bool(options)
    for minute in range(minutes):
        grown = held and minute >= 5
        shadow.look(fleet(grown=grown), minute, growth_status(minute, grown=grown))
    shadow.look(fleet(grown=held, gone=True), minutes, growth_status(minutes, grown=held))
    [match] = [match for match in shadow.matches if match.kind == "removal"]
    assert (match.verdict, match.detail) == (verdict, detail)
