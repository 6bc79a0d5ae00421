"""Rows of the tables of groups and nodes: names, statuses in their order,
and what a person may type.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.health import Tone
from chalicelib.model.memory import (
    Backoff,
    GroupMemory,
    InterruptionNotice,
    InterruptionRisk,
    Memory,
    ScaleUpRequest,
)
from chalicelib.model.operation import Operation, OperationKind, OperationSpec, RemovalTarget
from chalicelib.model.overview import ClusterOverview, GroupOverview, NodeOverview, SpotOverview
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import (
    GroupVerdict,
    LifecycleVerdict,
    NodeVerdict,
    Plan,
    Removal,
    Restart,
    UnschedulablePods,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import MissingData
from chalicelib.store.journal import JournalEntry
from chalicelib.views.cluster_view import Instant, NoticeView, SpotView
from chalicelib.views.rows import (
    GroupMatch,
    GroupRow,
    GroupStatus,
    failure_words,
    group_named,
    group_rows,
    node_rows,
    price_words,
    short_name,
)
from tests.unit.journal.support import NOW

GROUP = "MachineDeployment/shop/workers"
OVERVIEW = ClusterOverview(
    NOW,
    (
        GroupOverview(
            GROUP, "workers", "clusterapi", "eu-1", "m5", 0.25, 10.0, 7.5, 100.0, 61.0, ("all",)
        ),
        GroupOverview("p-1", "burst", "exoscale", "ch-gva-2", "standard.large"),
    ),
    (NodeOverview("n-1", 0, "eu-1", "m5", NOW - 60, 75, 61, 4), NodeOverview("alone")),
)
BACKOFF = Backoff(300.0, NOW + 60, NOW - 240, "OutOfStock", "SoldOut", "none left")
FULL = Reason.of(ReasonCode.GROUP_MAX_SIZE, max=5)
NEEDS_A_PERSON = ("not read", "unhealthy", "cannot grow", "at its maximum")


def stands(
    word: str,
    tone: Tone,
    detail: str = "",
    since: float = 0.0,
    until: float = 0.0,
    usually: float = 0.0,
) -> GroupStatus:
    begin, end = Instant(since), Instant(until)
    return GroupStatus(word, tone, detail, begin, end, usually, person=word in NEEDS_A_PERSON)


def verdict(**changes: Any) -> GroupVerdict:
    return msgspec.structs.replace(GroupVerdict(GROUP, "clusterapi", 1, 5, 3, ready=3), **changes)


def plan(*groups: GroupVerdict, **changes: Any) -> Plan:
    return Plan(id="plan-1", cluster="shop", at=NOW - 30, groups=groups, **changes)


def operation(
    kind: OperationKind, since: float, sizes: tuple[int, int] = (3, 5), *targets: str
) -> Operation:
    removed = tuple(RemovalTarget(name, f"i-{name}") for name in targets)
    return Operation(
        OperationSpec(
            "o", "shop", "clusterapi", GROUP, kind, "plan-1", since, *sizes, targets=removed
        )
    )


def ended(ago: float, state: str = "succeeded", **facts: str | float) -> JournalEntry:
    facts = {"kind": "grow", "state": state, **facts}
    return JournalEntry(NOW - ago, "operation", group=GROUP, facts=facts)


def rows(
    decision: Plan | None, memory: GroupMemory | None = None, **more: Any
) -> tuple[GroupRow, ...]:
    operations = more.pop("operations", ())
    remembered = Memory(groups={GROUP: memory or GroupMemory()}, operations=operations)
    return group_rows(decision, remembered, more.pop("overview", OVERVIEW), NOW, **more)


def status(decision: Plan | None, memory: GroupMemory | None = None, **more: Any) -> GroupStatus:
    return rows(decision, memory, **more)[0].status


def test_row_has_what_decision_and_overview_say() -> None:
    (row,) = rows(plan(verdict()))
    assert (row.group, row.name, row.provider_title) == (GROUP, "workers", "Cluster API")
    assert (row.zone, row.machine, row.price, row.cpu, row.memory) == ("eu-1", "m5", 0.25, 75, 61)
    assert (row.ready, row.coming, row.target, row.min, row.max) == (3, 0, 3, 1, 5)
    assert row.status == stands("steady", Tone.OK)


def test_row_has_the_currency_the_source_and_the_date_of_its_price() -> None:
    group = GroupOverview(
        GROUP,
        price=0.24,
        currency="EUR",
        price_source="provider",
        price_date="2026-11-27",
        no_price="",
    )
    (row,) = rows(plan(verdict()), overview=ClusterOverview(NOW, (group,), currency="USD"))
    assert (row.price, row.currency, row.price_source, row.price_date) == (
        0.24,
        "EUR",
        "provider",
        "2026-11-27",
    )
    missing = GroupOverview(GROUP, no_price="no list names it")
    (row,) = rows(plan(verdict()), overview=ClusterOverview(NOW, (missing,)))
    assert (row.price, row.no_price) == (None, "no list names it")


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ((0.24, "EUR", "provider", "2026-11-27", ""), "0.24 EUR (provider, 2026-11-27)"),
        ((0.24, "", "policy", "", ""), "0.24 (policy)"),
        ((0.24, "", "", "", ""), "0.24"),
        (
            (0.24, "CNY", "provider", "", "others are in EUR"),
            "0.24 CNY (provider); not compared: others are in EUR",
        ),
        ((None, "", "", "", "no list names it"), "no price: no list names it"),
        ((None, "", "", "", ""), ""),
    ],
)
def test_price_is_said_with_all_that_is_known_of_it(
    price: tuple[float | None, str, str, str, str], words: str
) -> None:
    assert price_words(*price) == words


def test_group_without_overview_has_the_short_name_of_its_id_and_nothing_invented() -> None:
    (row,) = rows(plan(verdict()), overview=ClusterOverview())
    assert (row.name, row.provider, row.price, row.cpu, row.memory) == (
        "workers",
        "clusterapi",
        None,
        None,
        None,
    )


def test_groups_that_no_pass_has_decided_on_have_rows() -> None:
    assert [row.name for row in rows(None)] == ["workers", "burst"]
    assert {row.status.word for row in rows(None)} == {"steady"}
    known = ClusterOverview(NOW, (GroupOverview(GROUP, ready=2, min=1, max=7),))
    (row,) = rows(None, GroupMemory(target=3), overview=known)
    assert (row.ready, row.target, row.min, row.max) == (2, 3, 1, 7)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (GROUP, "workers"),
        ("0f-uid/default", "0f-uid"),
        ("0f-uid/az2", "az2"),
        ("asg-1", "asg-1"),
        ("", ""),
        ("/", ""),
    ],
)
def test_short_name_is_the_part_of_an_id_that_says_most(group: str, name: str) -> None:
    assert short_name(group) == (name or group)


def test_statuses_come_in_their_order() -> None:
    """Each situation is added to those before, so the first one that is gone leaves the next."""
    unread = verdict(
        healthy=False,
        upcoming=2,
        skipped=Reason.of(ReasonCode.GROUP_UNREADABLE, detail="no such group"),
    )
    decision = plan(unread, unschedulable=(UnschedulablePods(("a/b",), {GROUP: (FULL,)}),))
    memory = GroupMemory(backoff=BACKOFF)
    leaving = (operation(OperationKind.DELETE_NODES, NOW - 50, (3, 2), "n-1"),)
    pauses = (Pause(NOW + 600, NOW - 5, group=GROUP, reason="test", by="kim"),)
    words = [status(decision, memory, operations=leaving, pauses=pauses).word]
    sick = verdict(
        healthy=False,
        upcoming=2,
        skipped=Reason.of(ReasonCode.GROUP_UNHEALTHY, detail="2 nodes missing"),
    )
    decision = msgspec.structs.replace(decision, groups=(sick,))
    words.append(status(decision, memory, operations=leaving, pauses=pauses).word)
    decision = msgspec.structs.replace(decision, groups=(verdict(upcoming=2),))
    refused = GroupMemory(backoff=msgspec.structs.replace(BACKOFF, cls="Unauthorized"))
    words.append(status(decision, refused, operations=leaving, pauses=pauses).word)
    words.append(status(decision, memory, operations=leaving, pauses=pauses).word)
    words.append(status(decision, memory, operations=leaving).word)
    words.append(status(decision, operations=leaving).word)
    decision = msgspec.structs.replace(decision, groups=(verdict(),))
    words += [
        status(decision, operations=leaving).word,
        status(decision).word,
        status(plan(verdict())).word,
    ]
    expected = (
        "not read, unhealthy, cannot grow, paused, backing off, growing, leaving, "
        "at its maximum, steady"
    )
    assert ", ".join(words) == expected


def test_back_off_says_what_failed_where_and_until_when() -> None:
    assert status(plan(verdict()), GroupMemory(backoff=BACKOFF)) == stands(
        "backing off", Tone.WARN, "sold out in eu-1", NOW - 240, NOW + 60
    )
    over = msgspec.structs.replace(BACKOFF, until=NOW - 1)
    assert status(plan(verdict()), GroupMemory(backoff=over)).word == "steady"


def test_failure_has_the_vendors_message_where_the_class_does_not_say_enough() -> None:
    assert failure_words("QuotaExceeded", "10 of 10 vCPU") == "the quota is used up: 10 of 10 vCPU"
    request = "PUT api.example/v2/nodepool/1:scale: HTTP 412"
    assert failure_words("QuotaExceeded", f"{request}: limit 0.") == "the quota is used up: limit 0"
    assert failure_words("Throttled", request) == failure_words("Throttled")
    assert failure_words("Peculiar", "x" * 900) == "Peculiar: " + "x" * 200
    assert failure_words("") == "failed"


@pytest.mark.parametrize(
    ("part", "group", "detail"),
    [
        (PausedPart.ALL, "", None),
        (PausedPart.REMOVALS, "", None),
        (PausedPart.GROWTH, GROUP, "growth: test, by kim"),
        (PausedPart.ALL, "other", None),
    ],
)
def test_group_is_paused_by_a_pause_of_its_own_and_not_of_the_cluster(
    part: PausedPart, group: str, detail: str | None
) -> None:
    pause = Pause(NOW + 600, NOW - 5, part, group, "test", "kim")
    expected = (
        stands("paused", Tone.INFO, detail, NOW - 5, NOW + 600)
        if detail
        else stands("steady", Tone.OK)
    )
    assert status(plan(verdict()), pauses=[pause]) == expected
    assert (
        status(plan(verdict()), pauses=[msgspec.structs.replace(pause, until=NOW - 1)]).word
        == "steady"
    )


def test_growth_says_since_when_and_how_long_the_latest_ones_took() -> None:
    request = GroupMemory(request=ScaleUpRequest(2, NOW - 41, NOW + 900))
    entries = [ended(at, seconds=at) for at in (130.0, 100.0, 140.0, 120.0, 110.0, 9000.0)]
    entries.insert(1, ended(105.0, "failed", seconds=1.0))
    assert status(plan(verdict(upcoming=2)), request, entries=entries) == stands(
        "growing", Tone.INFO, "2 nodes on their way", NOW - 41, usually=120.0
    )
    assert status(plan(verdict(upcoming=1)), request).usually == 0.0


def test_growth_that_the_decision_has_just_requested_counts_as_coming() -> None:
    new = (operation(OperationKind.SCALE_UP, NOW - 30),)
    (row,) = rows(plan(verdict()), operations=new)
    assert (row.ready, row.coming, row.target, row.status.detail) == (
        3,
        2,
        5,
        "2 nodes on their way",
    )
    older = (operation(OperationKind.SCALE_UP, NOW - 300),)
    assert rows(plan(verdict(upcoming=1)), operations=older)[0].coming == 1, (
        "one of the two has arrived"
    )


def test_removal_says_how_many_nodes_leave() -> None:
    leaving = (operation(OperationKind.DELETE_NODES, NOW - 50, (3, 2), "n-1"),)
    assert status(plan(verdict()), operations=leaving) == stands(
        "leaving", Tone.INFO, "1 node leaves", NOW - 50
    )


def test_full_group_is_at_its_maximum_only_for_pods_that_it_refuses() -> None:
    full = verdict(target=5, skipped=FULL)
    refused = (
        UnschedulablePods(("a/b", "a/c"), {GROUP: (FULL,)}),
        UnschedulablePods(("a/d",), {GROUP: (Reason.of(ReasonCode.NODE_AFFINITY),)}),
    )
    assert status(plan(full)).word == "steady"
    assert status(plan(full, unschedulable=refused[1:])).word == "steady"
    assert status(plan(full, unschedulable=refused)) == stands(
        "at its maximum", Tone.WARN, "2 pods would need another node"
    )


def test_steady_group_says_what_it_could_not_do_until_it_did_or_a_day_has_passed() -> None:
    failed = ended(600.0, "failed", **{"class": "OutOfStock"})
    assert status(plan(verdict()), entries=[failed]) == stands(
        "steady", Tone.OK, "could not grow: sold out in eu-1", NOW - 600
    )
    assert status(plan(verdict()), entries=[ended(10.0), failed]) == stands("steady", Tone.OK)
    assert (
        status(plan(verdict()), entries=[ended(90_000.0, "failed", **{"class": "Unknown"})]).detail
        == ""
    )


def test_group_of_a_provider_that_was_not_read_keeps_its_row() -> None:
    gap = MissingData("provider/exoscale", "Transient: no answer")
    workers, burst = rows(
        plan(verdict(), gaps=(gap, MissingData("NodeGroup", "a warning", name=GROUP)))
    )
    assert (workers.status.word, burst.name) == ("steady", "burst")
    assert burst.status == stands("not read", Tone.BAD, "Transient: no answer")
    assert len(rows(plan(verdict()))) == 1, "a group that is gone has none"


ALIKE = (
    GroupOverview("a", "web", "exoscale", "z1"),
    GroupOverview("b", "web", "alicloud", "z1"),
    GroupOverview("c/default", "gpu", "huaweicloud", "z1"),
    GroupOverview("c/az2", "gpu", "huaweicloud", "z2"),
    GroupOverview("d", "same", "exoscale"),
    GroupOverview("e", "same", "exoscale"),
    GroupOverview("f", "own", "exoscale", aliases=("pool-f", "Shared")),
    GroupOverview("g", "Other", "exoscale", aliases=("shared",)),
)


def test_names_of_groups_are_unique() -> None:
    overview = ClusterOverview(NOW, ALIKE)
    names = [row.name for row in group_rows(None, Memory(), overview, NOW)]
    assert sorted(names) == sorted(
        ["exoscale/web", "alicloud/web", "gpu/z1", "gpu/z2", "d", "e", "own", "Other"]
    )


def test_qualified_name_is_not_the_name_of_another_group() -> None:
    taken = (*ALIKE[:2], GroupOverview("h", "exoscale/web", "alicloud"))
    names = [row.name for row in group_rows(None, Memory(), ClusterOverview(NOW, taken), NOW)]
    assert names == ["a", "alicloud/web", "h"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a", GroupMatch("a")),
        ("exoscale/web", GroupMatch("a")),
        ("gpu/z2", GroupMatch("c/az2")),
        ("pool-f", GroupMatch("f")),
        ("OTHER", GroupMatch("g")),
        ("Shared", GroupMatch("f")),
        ("SHARED", GroupMatch(candidates=("own", "Other"))),
        ("web", GroupMatch(candidates=("exoscale/web", "alicloud/web"))),
        ("gpuu/z1", GroupMatch(candidates=("gpu/z1", "gpu/z2"))),
        ("nothing like it", GroupMatch()),
    ],
)
def test_person_may_type_an_id_a_name_or_an_alias(text: str, match: GroupMatch) -> None:
    overview = ClusterOverview(NOW, ALIKE)
    in_order = tuple(
        sorted(group_rows(None, Memory(), overview, NOW), key=lambda row: row.group[0])
    )
    assert group_named(overview, text).group == match.group == group_named(in_order, text).group
    assert sorted(group_named(overview, text).candidates) == sorted(match.candidates)


def test_node_row_joins_decision_and_overview() -> None:
    stays = NodeVerdict("n-1", Reason.of(ReasonCode.BLOCKED_BY_POD, pod="a/b"), "a/b")
    decision = plan(
        verdict(), unremovable=(stays,), removals=(Removal("n-9", GROUP, "drain", ("a/c",)),)
    )
    gone, kept, alone = node_rows(decision, OVERVIEW, rows(decision), Memory())
    assert (gone.node, gone.decision, gone.group_name, gone.evict) == (
        "n-9",
        "removed",
        "workers",
        ("a/c",),
    )
    assert (gone.cpu, gone.pods, gone.created) == (None, None, 0.0)
    assert (kept.node, kept.group, kept.group_name, kept.pod) == ("n-1", GROUP, "workers", "a/b")
    assert (kept.cpu, kept.memory, kept.pods, kept.zone, kept.created) == (
        75,
        61,
        4,
        "eu-1",
        NOW - 60,
    )
    assert (alone.node, alone.group, alone.group_name, alone.decision) == ("alone", "", "", "")


def test_node_that_only_an_older_overview_has_is_gone() -> None:
    stays = NodeVerdict("n-1", Reason.of(ReasonCode.BLOCKED_BY_POD, pod="a/b"), "a/b")
    decision = plan(verdict(), unremovable=(stays,))
    for seen_at, names in ((NOW, ["n-1", "alone"]), (decision.at - 1, ["n-1"])):
        seen = msgspec.structs.replace(OVERVIEW, at=seen_at)
        assert [row.node for row in node_rows(decision, seen, (), Memory())] == names
    assert [row.node for row in node_rows(None, OVERVIEW, (), Memory())] == ["n-1", "alone"]


@pytest.mark.parametrize(
    ("after", "facts", "names"),
    [
        (10, {}, ["n-2"]),
        (-10, {}, ["n-9", "n-2"]),
        (10, {"state": "failed"}, ["n-9", "n-2"]),
        (10, {"kept n-9": "it has pods"}, ["n-9", "n-2"]),
        (10, {"kind": "restart"}, ["n-9", "n-2"]),
    ],
)
def test_node_whose_removal_has_ended_since_the_decision_is_gone(
    after: float, facts: dict[str, Any], names: list[str]
) -> None:
    stays = NodeVerdict("n-2", Reason.of(ReasonCode.BLOCKED_BY_POD, pod="a/b"), "a/b")
    removal = Removal("n-9", GROUP, "drain", ())
    decision = plan(verdict(), unremovable=(stays,), removals=(removal,))
    whole = {"kind": "remove", "state": "succeeded", "targets": "n-9", **facts}
    entry = JournalEntry(decision.at + after, "operation", group=GROUP, facts=whole)
    rows_seen = node_rows(decision, ClusterOverview(), (), Memory(), [entry])
    assert [row.node for row in rows_seen] == names


RISK = InterruptionRisk(
    interruptions=3.0,
    hours=500.0,
    counted_at=NOW - 60,
    nodes=2,
    last_notice=NOW - 600,
    notices={"n-1": InterruptionNotice(NOW - 20, NOW + 100)},
)


def spot_overview(**fields: float) -> ClusterOverview:
    group = msgspec.structs.replace(OVERVIEW.groups[0], spot=SpotOverview(**fields))
    return msgspec.structs.replace(OVERVIEW, groups=(group,))


def test_spot_group_has_its_risk_and_what_follows_from_it() -> None:
    known = spot_overview(price=2.4, avoided_for=1800.0)
    (row,) = rows(plan(verdict()), GroupMemory(risk=RISK), overview=known)
    assert row.spot == SpotView(
        3.0, 500.0, 2.3607, 0.007869, Instant(NOW - 600), Instant(NOW + 1200), 1
    )
    line = (
        "3 interruptions in 500 node hours, halved every 7 days; 2.4 a month is expected of a node"
    )
    assert row.spot.risk_line == line
    assert rows(plan(verdict()))[0].spot is None


def test_spot_group_of_which_nothing_is_known_has_the_prior_and_no_price_of_the_risk() -> None:
    (row,) = rows(plan(verdict()), overview=spot_overview())
    assert row.spot == SpotView(0.0, 0.0, 1.0, None, Instant(0.0), Instant(0.0), 0)
    (rated,) = rows(plan(verdict()), overview=spot_overview(rate=0.1, price=1.0))
    assert rated.spot is not None
    assert (rated.spot.per_month, rated.spot.premium) == (0.1, 0.000139)


@pytest.mark.parametrize(
    ("ago", "until"), [(1799.0, NOW + 1.0), (1800.0, 0.0), (-50.0, NOW + 1800.0)]
)
def test_group_is_avoided_for_its_time_after_the_last_notice(ago: float, until: float) -> None:
    risk = msgspec.structs.replace(RISK, last_notice=NOW - ago)
    (row,) = rows(
        plan(verdict()), GroupMemory(risk=risk), overview=spot_overview(avoided_for=1800.0)
    )
    assert row.spot is not None
    assert row.spot.avoided_until == until


def test_notices_of_a_group_on_demand_do_not_make_it_spot() -> None:
    notices = GroupMemory(risk=InterruptionRisk(notices=RISK.notices))
    (row,) = rows(
        plan(verdict()),
        notices,
        overview=msgspec.structs.replace(OVERVIEW, groups=OVERVIEW.groups[:1]),
    )
    assert row.spot is None


def test_node_row_has_the_notice_of_its_vendor_and_why_it_should_go() -> None:
    sick = LifecycleVerdict("n-1", DisruptionReason.REPAIR, NOW - 60)
    decision = plan(verdict(), unneeded=("n-1",), lifecycle=(sick,))
    memory = Memory(groups={GROUP: GroupMemory(risk=RISK)})
    groups = group_rows(decision, memory, spot_overview(), NOW)
    own, alone = node_rows(decision, spot_overview(), groups, memory)
    assert (own.spot, own.notice, own.lifecycle) == (
        True,
        NoticeView(Instant(NOW - 20), Instant(NOW + 100)),
        sick,
    )
    assert own.due_line == "It is sick, and goes now."
    assert (alone.spot, alone.notice, alone.due_line) == (False, None, "")
    restarting = msgspec.structs.replace(decision, restarts=(Restart("n-1", GROUP, "Ready=False"),))
    own, _ = node_rows(restarting, spot_overview(), groups, memory)
    assert own.due_line == "It is sick, and is restarted now."


def test_group_counts_its_nodes_that_should_go_by_the_reason() -> None:
    held = Reason.of(ReasonCode.TOO_MANY_UNHEALTHY, unhealthy=2, of=3, share=0.2)
    due = (
        LifecycleVerdict("n-1", DisruptionReason.REPAIR, NOW, held),
        LifecycleVerdict("alone", DisruptionReason.EXPIRED, NOW),
        LifecycleVerdict("unknown", DisruptionReason.EXPIRED, NOW),
    )
    row, burst = rows(plan(verdict(), GroupVerdict("p-1", "exoscale", 0, 3, 0), lifecycle=due))
    assert (row.due, row.due_words, burst.due, burst.due_words) == ({"repair": 1}, "1 sick", {}, "")


def test_node_that_only_the_decision_has_keeps_its_row() -> None:
    decision = plan(verdict(), unneeded=("n-7",))
    (row,) = node_rows(decision, ClusterOverview(), (), Memory())
    assert (row.node, row.decision, row.machine, row.cpu) == ("n-7", "unneeded", "", None)
