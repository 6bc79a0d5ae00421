"""Signs of the other autoscaler's process: its end, a new one, and which growths it made."""

from __future__ import annotations

import msgspec

from chalicelib.model.group import SizeWriter
from chalicelib.model.snapshot import Snapshot
from chalicelib.shadow.other_status import GroupStatus, OtherStatus
from chalicelib.shadow.records import ShadowVerdict
from tests.builders import NOW
from tests.cases import each_row
from tests.unit.shadow.passes import MINUTE, ShadowPasses, soft, status
from tests.unit.shadow.test_growth_matching import base, bound, groups, one_group, web
from tests.unit.shadow.test_removal_matching import fleet

GREW = ShadowVerdict.SAME
SOMEBODY = ShadowVerdict.SOMEBODY


def process(
    minutes: float,
    began: float = -60.0,
    uid: str = "a",
    groups: dict[str, GroupStatus] | None = None,
) -> OtherStatus:
    """The status of that minute of a process that began at `began`."""
    return OtherStatus(
        NOW + minutes * MINUTE,
        groups=groups or {},
        candidates=1,
        began=NOW + began * MINUTE if began else 0.0,
        uid=uid,
    )


def state(
    word: str, changed: float, health: str = "Healthy", health_changed: float = -60.0
) -> GroupStatus:
    return GroupStatus(word, NOW + changed * MINUTE, health, NOW + health_changed * MINUTE)


# -- growths


def passes_with(
    before: GroupStatus, after: GroupStatus, later: GroupStatus | None = None
) -> list[ShadowVerdict]:
    """The verdicts of one growth between minutes 0 and 1, at 20 seconds. later: what is
    reported from minute 2 on."""
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, process(0, groups={"web": before}))
    grown = web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1))
    for minute in (1, 2, 3, 4, 5):
        shadow.look(
            grown,
            minute,
            process(minute, groups={"web": after if minute == 1 or not later else later}),
        )
    return shadow.verdicts


IDLE = state("NoActivity", -60)
GROWING = state("InProgress", 0.2)


@each_row(
    "before, after, expected",
    [
        (IDLE, GROWING, GREW),
        (IDLE, state("NoActivity", 0.8), GREW),  # in progress and over between the two passes
        (IDLE, state("Backoff", 0.8), GREW),
        (IDLE, IDLE, SOMEBODY),
        (IDLE, state("Unhealthy", 0.5, "Unhealthy", 0.5), SOMEBODY),
        (
            state("Unhealthy", -5, "Unhealthy", -5),
            state("NoActivity", 0.8, "Healthy", 0.8),
            SOMEBODY,
        ),
        # unhealthy and over between the two passes
        (IDLE, state("NoActivity", 0.8, "Healthy", 0.8), SOMEBODY),
        (state("Backoff", -5), state("NoActivity", 0.8), SOMEBODY),
        # it was over before the growth
        (state("InProgress", -1), state("NoActivity", 0.1), SOMEBODY),
        (state("InProgress", -1), state("InProgress", -1), GREW),
        (state("InProgress", -1), state("InProgress", -1, "Unhealthy", 0.5), SOMEBODY),
    ],
)
def test_only_a_scale_up_in_progress_or_ended_confirms_a_growth(
    before: GroupStatus, after: GroupStatus, expected: ShadowVerdict
) -> None:
    assert passes_with(before, after) == [expected]


def test_unhealthy_and_then_no_activity_is_no_sign_of_a_growth() -> None:
    unhealthy, healthy = (
        state("Unhealthy", 0.5, "Unhealthy", 0.5),
        state("NoActivity", 1.5, "Healthy", 1.5),
    )
    assert passes_with(IDLE, unhealthy, healthy) == [SOMEBODY]


def test_status_that_is_written_after_the_pass_confirms_a_growth() -> None:
    assert passes_with(IDLE, IDLE, GROWING) == [GREW]


def test_scale_up_that_begins_after_a_growth_by_a_person_does_not_confirm_it() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, process(0, groups={"web": IDLE}))
    shadow.look(web(one_group(1, at=1 / 3)), 1, process(0.9, groups={"web": IDLE}))
    own = {"web": state("InProgress", 1.4)}
    both = bound(
        one_group(1, at=1 / 3).node("web-2", "2", group="web", created=NOW + 1.5 * MINUTE),
        "web-2",
        2,
        1.2,
    )
    both = bound(both, "web-1", 2, created=0.1)
    for minute in (2, 3, 4, 5, 6):
        shadow.look(web(both), minute, process(minute - 0.1, groups=own))
    assert [(match.verdict, match.theirs) for match in shadow.matches] == [
        (SOMEBODY, {"web": 1}),
        (GREW, {"web": 1}),
    ]


def test_first_loop_of_a_new_process_confirms_no_growth() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, process(0, groups={"web": IDLE}))
    after = web(one_group(1, at=0.8))
    for minute in (1, 2, 3, 4, 5):
        new = {"web": state("NoActivity", 0.5, health_changed=0.5)}
        shadow.look(after, minute, process(minute, began=0.5, groups=new))
    assert shadow.verdicts == [SOMEBODY]


def test_group_that_the_status_does_not_list_is_not_the_others() -> None:
    shadow = ShadowPasses()
    listed = {"web": state("InProgress", 0.2)}
    shadow.look(groups(base()), 0, process(0, groups=listed))
    for minute in (1, 2, 3, 4, 5):
        told = msgspec.structs.replace(
            process(minute, groups=listed), wide=state("InProgress", 0.2)
        )
        shadow.look(groups(base({"job": 1}, at=1 / 3)), minute, told)
    assert shadow.verdicts == [SOMEBODY]


def test_whole_cluster_stands_for_groups_where_the_other_has_its_own_names() -> None:
    shadow = ShadowPasses()
    other = {"asg-of-web": state("InProgress", 0.2)}
    shadow.look(web(one_group()), 0, process(0, groups=other))
    for minute in (1, 2, 3, 4, 5):
        told = msgspec.structs.replace(process(minute, groups=other), wide=state("InProgress", 0.2))
        shadow.look(web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1)), minute, told)
    assert shadow.verdicts == [GREW]


def written_by(built: Snapshot, name: str, minutes: float) -> Snapshot:
    writer = SizeWriter(name, NOW + minutes * MINUTE)
    changed = tuple(msgspec.structs.replace(group, size_writer=writer) for group in built.groups)
    return msgspec.structs.replace(built, groups=changed)


@each_row(
    "name, minutes, said, expected",
    [
        ("cluster-autoscaler", 0.3, IDLE, GREW),
        ("kubectl", 0.3, GROWING, SOMEBODY),
        ("kubectl-edit", 0.3, GROWING, SOMEBODY),
        ("helm", 0.3, None, SOMEBODY),
        ("ca-of-a-vendor", 0.3, GROWING, GREW),
        ("ca-of-a-vendor", 0.3, IDLE, SOMEBODY),
        ("kubectl", -30, GROWING, GREW),  # an older write than this growth
    ],
)
def test_writer_of_the_size_says_who_made_a_growth(
    name: str, minutes: float, said: GroupStatus | None, expected: ShadowVerdict
) -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, process(0, groups={"web": IDLE}) if said else None)
    grown = web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1)).snapshot()
    for minute in (1, 2, 3, 4, 5):
        told = process(minute, groups={"web": said}) if said else None
        shadow.look(written_by(grown, name, minutes), minute, told)
    assert shadow.verdicts == [expected]


def test_growth_is_confirmed_later_where_one_status_could_not_be_read() -> None:
    for said, expected in ((IDLE, SOMEBODY), (GROWING, GREW)):
        shadow = ShadowPasses()
        shadow.look(web(one_group()), 0, process(0, groups={"web": IDLE}))
        grown = web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1))
        shadow.look(grown, 1)
        for minute in (2, 3, 4, 5):
            shadow.look(grown, minute, process(minute, groups={"web": said}))
        assert shadow.verdicts == [expected]


def test_growth_counts_as_the_others_where_its_status_cannot_be_read_any_more() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, process(0, groups={"web": IDLE}))
    for minute in range(1, 10):
        shadow.look(web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1)), minute)
    assert shadow.verdicts == [GREW]


# -- ends and beginnings


def test_status_that_never_existed_is_no_sign_of_an_end() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, missing=True)
    for minute in (1, 2, 3, 4):
        shadow.look(
            web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1)), minute, missing=True
        )
    assert (shadow.verdicts, shadow.left_out) == ([GREW], 0.0)


def test_status_that_may_not_be_read_any_more_is_no_sign_of_an_end() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    for minute in range(1, 30):
        shadow.look(web(one_group()), minute)
    assert shadow.left_out == 0.0


def test_time_without_a_status_begins_with_the_last_pass_that_saw_one() -> None:
    shadow = ShadowPasses()
    for minute in range(9):  # the row is written at minute 0 only
        shadow.look(web(one_group()), minute, status(minute - 0.1))
    for minute in range(9, 20):
        shadow.look(web(one_group()), minute, missing=True)
    assert round(shadow.left_out) == round(11.1 * MINUTE)


def test_time_after_the_last_status_is_left_out_when_it_gets_old() -> None:
    shadow = ShadowPasses()
    for minute in range(20):  # the row is written at minutes 0, 6, 9 and 19
        shadow.look(web(one_group()), minute, status(min(minute, 3.9)))
    assert round(shadow.left_out) == round(15.1 * MINUTE)


def test_wanted_nodes_are_no_difference_while_no_status_follows() -> None:
    shadow = ShadowPasses()
    pending = web(one_group().pending(2, "900m"))
    for minute in range(9):
        shadow.look(pending, minute, status(min(minute, 0.5)))
    assert shadow.matches == ()


def test_removal_later_than_the_last_status_is_dropped_with_the_outage() -> None:
    shadow = ShadowPasses()
    shadow.look(fleet(taints={"w-1": (soft(0),)}), 0, status(0, candidates=1))
    for minute in range(1, 9):
        shadow.look(fleet("w-0", empty=""), minute, status(0.5, candidates=1))
    assert shadow.verdicts == []


def test_removal_later_than_the_last_status_counts_when_one_follows() -> None:
    shadow = ShadowPasses()
    shadow.look(fleet(taints={"w-1": (soft(0),)}), 0, status(0, candidates=1))
    shadow.look(fleet("w-0", empty=""), 1, status(0.9, candidates=1))
    assert shadow.verdicts == []
    shadow.look(fleet("w-0", empty=""), 2, status(1.9, candidates=1))
    assert shadow.verdicts == [ShadowVerdict.LATER]


@each_row(
    "first, second, restarted",
    [
        (process(0), process(1), None),
        (process(0), process(1, began=0.5), 0.5),
        (process(0), process(1, began=0.5, uid="b"), 0.5),
        # somebody deleted the ConfigMap, and the process wrote it again
        (process(0), process(1, uid="b"), None),
        (process(0, began=0), process(1, began=0, uid="b"), 1.0),
        (process(0, began=0), process(1, began=0), None),
        (process(0), msgspec.structs.replace(OtherStatus(NOW + 50, starting=True)), 50 / MINUTE),
    ],
)
def test_new_process_is_recognised(
    first: OtherStatus, second: OtherStatus, restarted: float | None
) -> None:
    shadow = ShadowPasses()
    tainted = fleet(taints={"w-1": (soft(-1),)})
    shadow.look(tainted, 0, first)
    shadow.look(tainted, 1, second)
    assert shadow.ledger is not None
    assert shadow.ledger.restarted == (0.0 if restarted is None else NOW + restarted * MINUTE)


def test_taint_that_is_renewed_is_no_restart_of_a_process_that_runs_on() -> None:
    shadow = ShadowPasses()
    shadow.look(fleet(taints={"w-1": (soft(-1),)}), 0, process(0))
    shadow.look(fleet(taints={"w-1": (soft(0.5),)}), 1, process(1))
    assert shadow.ledger is not None
    assert shadow.ledger.restarted == 0.0


def test_process_after_an_outage_is_a_restart_as_well() -> None:
    shadow = ShadowPasses()
    shadow.look(fleet(), 0, process(0))
    shadow.look(fleet(), 1, missing=True)
    shadow.look(fleet(), 2, process(2, began=1.5, uid="b"))
    assert shadow.ledger is not None
    assert shadow.ledger.restarted == NOW + 1.5 * MINUTE
    assert round(shadow.left_out) == 2 * MINUTE


def test_node_that_only_our_plan_removes_gets_half_an_hour_after_a_restart() -> None:
    shadow = ShadowPasses()
    for minute in range(55):
        shadow.look(fleet(), minute, process(minute, began=-60 if minute < 25 else 24.5))
    assert shadow.matches == ()
    shadow.look(fleet(), 55, process(55, began=24.5))
    assert shadow.verdicts == [ShadowVerdict.ONLY_OURS]
