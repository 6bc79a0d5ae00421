"""`outscaler get` with kubectl's habits: names, forms of the answer, selectors, changed
rows; and its whole tables.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import yaml

from chalicelib.cli.columns import age
from chalicelib.cli.commands import get
from chalicelib.cli.listing import Column, Listing, TableKind
from chalicelib.cli.main import main
from chalicelib.journal import carry_over
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.journal import decision, last_decision, plan_entry
from chalicelib.journal.metric_values import pass_gauges
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import (
    Backoff,
    GroupMemory,
    InterruptionNotice,
    InterruptionRisk,
    JoinStatistics,
    Memory,
)
from chalicelib.model.operation import OperationKind
from chalicelib.model.overview import ClusterOverview, GroupOverview, NodeOverview, SpotOverview
from chalicelib.model.pause import Pause
from chalicelib.model.plan import ConsolidationReport, LifecycleVerdict, NodeVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.store import Store
from chalicelib.store.errors import StoreError
from chalicelib.store.gauge_ring import GaugePoint
from chalicelib.store.leases import LastPass, PassFailure
from tests.builders import cluster
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.operations import new_operation
from tests.terminal import Terminal
from tests.unit.policy.policy_documents import GOOD

Said = pytest.CaptureFixture[str]
SHOP, LAB = "shop", "lab"
BURST = "MachineDeployment/default/burst"
OVERVIEW = ClusterOverview(
    NOW,
    (
        GroupOverview(
            "web", "web", "clusterapi", "ch-gva-2", "c4.large", 0.25, 8.0, 6.2, 3.2e10, 2.0e10
        ),
        GroupOverview(BURST, "burst", "exoscale", "ch-zrh-1,ch-gva-2", "huge", 1.5),
    ),
    (
        NodeOverview("busy", 0, "ch-gva-2", "c4.large", NOW - 90_000, 75, 40, 3),
        NodeOverview("idle", 0, "ch-gva-2", "c4.large", NOW - 400, 0, 1, 1),
    ),
    currency="EUR",
)
SPOT = SpotOverview(price=2.4, avoided_for=1800.0)


@pytest.fixture
def empty(account: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Empty tables, and a machine in Zurich."""
    monkeypatch.setenv("TZ", "Europe/Zurich")
    time.tzset()
    yield account
    monkeypatch.delenv("TZ")
    time.tzset()


@pytest.fixture
def store(empty: Store) -> Store:
    """A cluster whose group web grows for two pods, with a pod that fits nowhere
    and a group in back-off."""
    empty.policies.put(SHOP, GOOD.replace("prod-geneva", SHOP), "d1", None)
    build = (
        cluster()
        .node("busy", "4", group="web")
        .node("idle", "4", group="web")
        .running("busy", 1, "3", name="app")
    )
    build.group("web", max=5).group(BURST, max=3).pending(2, "3800m", name="wide").pending(
        1, "64", name="huge"
    )
    plan = msgspec.structs.replace(build.plan(), at=NOW - 600, cluster=SHOP)
    empty.journal.append(SHOP, plan_entry(plan))
    empty.gauge_rings.add(SHOP, GaugePoint(NOW, 2, 3), OVERVIEW, seen=0.0)
    operation = new_operation(
        id="grow-1",
        cluster=SHOP,
        provider="clusterapi",
        group="web",
        kind=OperationKind.SCALE_UP,
        plan="p",
        created_at=NOW - 41,
        from_size=2,
        to_size=4,
    )
    groups = {
        "web": GroupMemory(target=4),
        BURST: GroupMemory(backoff=Backoff(300.0, NOW + 300, NOW, cls="OutOfStock")),
    }
    lease = empty.leases.acquire(SHOP, "pass", 60)
    memory = Memory(groups=groups, operations=(operation,))
    empty.memory.save(SHOP, empty.memory.load(SHOP), memory, (operation,), lease)
    left = carry_over.write(CarryOver(decided=NOW - 600, gauges=pass_gauges(plan, Options(), {})))
    empty.leases.release(
        lease, passed_at=NOW - 13, carry_over=left, decision=decision(plan), succeeded=True
    )
    return empty


@pytest.fixture
def lab(store: Store) -> Store:
    """A second cluster, in mode shadow."""
    store.policies.put(
        LAB, GOOD.replace("prod-geneva", LAB).replace("mode: active", "mode: shadow"), "d2", None
    )
    return store


def printed(capsys: Said, *arguments: str) -> list[str]:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def answer(capsys: Said, *arguments: str) -> Any:
    return json.loads("\n".join(printed(capsys, *arguments, "-o", "json")))


def refusal(capsys: Said, *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    return capsys.readouterr().err.strip()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The lines that a command prints on a terminal of 100 columns without colours."""

    def lines(*arguments: str, width: int = 100) -> list[str]:
        for name, value in {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(width)}.items():
            monkeypatch.setenv(name, value)
        out = Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        assert main(arguments) == 0
        return out.getvalue().splitlines()

    return lines


# -- whole tables ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("lab")
def test_clusters_show_mode_health_nodes_waiting_pods_and_last_pass(capsys: Said) -> None:
    assert printed(capsys, "get") == [
        "CLUSTER   MODE     HEALTH                 NODES   WAITING   LAST PASS",
        "lab       shadow   no pass yet            -       -         never",
        "shop      active   1 pod without a node   2       1+2       13s ago",
    ]
    assert printed(capsys, "get", "clusters", LAB, "-o", "wide") == [
        "CLUSTER   MODE     HEALTH        NODES   WAITING   LAST PASS   VERSION   STORED   DIGEST",
        "lab       shadow   no pass yet   -       -         never       1         0s ago   d2",
    ]


def test_groups_show_the_columns_of_the_page(store: Store, capsys: Said) -> None:
    del store
    assert printed(capsys, "get", "groups", SHOP) == [
        "GROUP   PROVIDER     NODES   MIN..MAX   CPU   MEMORY   STATE",
        (
            "burst   exoscale     0       0..3       -     -        backing off until "
            "2026-11-18T11:11:40Z: "
            "sold out in ch-zrh-1,ch-gva-2"
        ),
        "web     clusterapi   2+2     0..5       78%   62%      2 nodes on their way since 41s",
    ]
    assert [
        line.split()[-8:] for line in printed(capsys, "get", "groups", SHOP, "-o", "wide")[1:]
    ] == [
        ["huge", "1.5", "EUR", "-", "-", "-", "-", BURST],
        ["c4.large", "0.25", "EUR", "-", "-", "-", "-", "web"],
    ]


def test_wide_groups_show_what_they_have_taught(store: Store, capsys: Said) -> None:
    lease = store.leases.acquire(SHOP, "another", 60)
    before = store.memory.load(SHOP)
    joins = JoinStatistics(
        ready=(170, 180, 290), joined=98, failed=2, counted_at=NOW, since_timeout=3
    )
    web = msgspec.structs.replace(before.groups["web"], joins=joins)
    gone = GroupMemory(target=1, joins=JoinStatistics(ready=(3600,), joined=1, counted_at=NOW))
    groups = {**before.groups, "web": web, "pool/gone": gone}
    store.memory.save(SHOP, before, msgspec.structs.replace(before, groups=groups), (), lease)
    wide = printed(capsys, "get", "groups", SHOP, "-o", "wide")
    assert re.split(r"  +", wide[0])[-5:] == ["READY TIME", "FAILS", "SPOT", "SHOULD GO", "ID"]
    assert [re.split(r"  +", line)[-5:] for line in wide[1:]] == [
        ["-", "-", "-", "-", BURST],
        ["3m (p95 4m50s)", "2%", "-", "-", "web"],
        ["1h (p95 1h)", "0%", "-", "-", "pool/gone"],
    ]
    burst, web_data, _ = answer(capsys, "get", "groups", SHOP)
    assert (burst["joins"]["readySeconds"], burst["joins"]["failureRate"]) == (None, None)
    assert web_data["joins"] == {
        "times": 3,
        "readySeconds": {"median": 180, "p95": 290, "p99": 290},
        "joined": 98.0,
        "failed": 2.0,
        "failureRate": 0.019608,
        "starting": 0,
        "sinceTimeout": 3,
    }


def test_spot_and_nodes_that_should_go_are_in_the_wide_tables(store: Store, capsys: Said) -> None:
    lease = store.leases.acquire(SHOP, "another", 60)
    before = store.memory.load(SHOP)
    notices = {"busy": InterruptionNotice(NOW - 20, NOW + 100)}
    risk = InterruptionRisk(3.0, 500.0, NOW - 60, 2, NOW - 20, notices)
    web = msgspec.structs.replace(before.groups["web"], risk=risk)
    groups = {**before.groups, "web": web, "pool/gone": GroupMemory(risk=risk)}
    store.memory.save(SHOP, before, msgspec.structs.replace(before, groups=groups), (), lease)
    seen = tuple(
        msgspec.structs.replace(group, spot=known)
        for group, known in zip(OVERVIEW.groups, (SPOT, None), strict=True)
    )
    store.gauge_rings.add(
        SHOP, GaugePoint(NOW + 9000, 2, 3), msgspec.structs.replace(OVERVIEW, groups=seen), seen=0.0
    )
    held = Reason.of(ReasonCode.DISRUPTION_BUDGET, budget="always", limit=1)
    due = (LifecycleVerdict("idle", DisruptionReason.EXPIRED, NOW - 60, held),)
    stored = last_decision(SHOP, store.scan_states.last(SHOP) or LastPass(), store.journal)
    assert stored is not None
    changed = msgspec.structs.replace(stored.plan, lifecycle=due)
    store.journal.append(SHOP, plan_entry(changed))
    store.leases.release(lease, passed_at=NOW - 13, decision=decision(changed))
    wide = [
        re.split(r"  +", line)[-3:] for line in printed(capsys, "get", "groups", SHOP, "-o", "wide")
    ]
    assert wide == [
        ["SPOT", "SHOULD GO", "ID"],
        ["-", "-", BURST],
        ["2.4 a month, avoided until 2026-11-18T11:36:20Z", "1 too old", "web"],
        ["2.4 a month", "-", "pool/gone"],
    ]
    nodes = printed(capsys, "get", "nodes", SHOP, "-o", "wide")
    assert [re.split(r"  +", line)[-2:] for line in nodes] == [
        ["SPOT", "SHOULD GO"],
        ["leaves 2026-11-18T11:08:20Z", "-"],
        ["yes", "too old"],
    ]
    busy, idle = answer(capsys, "get", "nodes", SHOP)["nodes"]
    assert busy["notice"] == {"seenAt": "2026-11-18T11:06:20Z", "leavesAt": "2026-11-18T11:08:20Z"}
    assert (busy["spot"], "lifecycle" in busy, "notice" in idle) == (True, False, False)
    assert (idle["lifecycle"]["why"], idle["lifecycle"]["held"]["code"]) == (
        "expired",
        "DisruptionBudget",
    )
    own = answer(capsys, "explain", "node", "busy", "--cluster", SHOP)
    assert (own["spot"], own["notice"], "lifecycle" in own) == (True, busy["notice"], False)
    own = answer(capsys, "explain", "node", "idle", "--cluster", SHOP)
    assert (own["lifecycle"], "notice" in own) == (idle["lifecycle"], False)
    assert "It is too old since" in " ".join(own["says"])
    group = answer(capsys, "explain", "group", "web", "--cluster", SHOP)
    assert (group["spot"]["interruptions"], group["spot"]["leaving"], group["due"]) == (
        3.0,
        1,
        {"expired": 1},
    )
    assert (group["spot"]["premium"], group["spot"]["perMonth"]) == (0.007869, 2.3607)
    assert printed(capsys, "get", "nodes", SHOP, "-l", "due=expired", "-o", "name") == ["node/idle"]
    assert printed(capsys, "get", "nodes", SHOP, "-l", "due=too-old", "-o", "name") == ["node/idle"]
    assert printed(capsys, "get", "groups", SHOP, "-l", "spot=yes", "-o", "name") == [
        "group/web",
        "group/gone",
    ]


def test_groups_on_a_terminal_fit_it_and_show_local_times(
    store: Store, screen: Callable[..., list[str]]
) -> None:
    del store
    assert screen("get", "groups", SHOP, width=80) == [
        "GROUP   PROVIDER     NODES   MIN..MAX   CPU   MEMORY   STATE",
        "burst   exoscale     0       0..3       -     -        backing off until 12:11:",
        "                                                       sold out in",
        "                                                       ch-zrh-1,ch-gva-2",
        "web     clusterapi   2+2     0..5       78%   62%      2 nodes on their way",
        "                                                       since 41s",
    ]


def test_nodes_show_their_group_use_age_and_why_they_stay(store: Store, capsys: Said) -> None:
    del store
    assert printed(capsys, "get", "nodes", SHOP) == [
        "NODE   GROUP   CPU   MEMORY   PODS   AGE     DECISION   WHY",
        (
            "busy   web     75%      40%      3   1d1h    stays      not underutilized (cpu 75%, "
            "threshold 50%)"
        ),
        (
            "idle   web      0%       1%      1   6m40s   stays      pending pods are expected on "
            "it (default/wide-00001)"
        ),
    ]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (ReasonCode.NOT_WORTH_DISRUPTION, "the saving is not worth the disruption"),
        (ReasonCode.CONSOLIDATION_OFF, "not underutilized (cpu 75%, threshold 50%)"),
    ],
)
def test_nodes_show_the_reason_of_consolidation_where_it_is_the_one_that_counts(
    empty: Store, capsys: Said, code: ReasonCode, why: str
) -> None:
    empty.policies.put(SHOP, GOOD.replace("prod-geneva", SHOP), "d1", None)
    build = (
        cluster()
        .node("busy", "4", group="web")
        .node("idle", "4", group="web")
        .running("busy", 1, "3", name="app")
    )
    plan = build.group("web", max=2).pending(1, "3800m", name="wide").plan()
    reason = Reason.of(code, detail="off", saves=0.1, disruption=9.0, score=0.33, needs=0.5)
    rows = tuple(NodeVerdict(node, reason) for node in ("busy", "idle"))
    report = ConsolidationReport("act", verdicts=rows)
    empty.journal.append(
        SHOP,
        plan_entry(msgspec.structs.replace(plan, at=NOW - 60, cluster=SHOP, consolidation=report)),
    )
    empty.leases.release(empty.leases.acquire(SHOP, "pass", 60), passed_at=NOW - 13)
    lines = printed(capsys, "get", "nodes", SHOP)
    (busy,) = [line for line in lines if line.startswith("busy")]
    (idle,) = [line for line in lines if line.startswith("idle")]
    assert why in busy
    assert "pending pods are expected on it" in idle


def test_pods_without_a_node_have_no_place(store: Store, capsys: Said) -> None:
    del store
    assert printed(capsys, "get", "pods", SHOP) == [
        "POD                  DECISION      WHY",
        (
            "default/huge-00003   no place      web: Insufficient cpu (needs 64, template offers "
            "4); 1 other group: no template 1"
        ),
        "default/wide-00002   new node      group web grows",
        "default/wide-00001   has a place",
    ]


def test_operations_name_the_group_as_people_do(store: Store, capsys: Said) -> None:
    del store
    assert printed(capsys, "get", "op", SHOP) == [
        "OPERATION   KIND   GROUP   CHANGE   STATE     STEP   ATTEMPT   PLANNED   NEXT",
        "grow-1      grow   web     2 to 4   planned                0   41s ago",
    ]


@pytest.mark.parametrize(
    ("failure", "health"),
    [
        (
            PassFailure("ClusterUnavailable", "no answer", NOW - 252, NOW - 13, 4),
            "passes fail for 4m12s: ClusterUnavailable: no answer",
        ),
        (
            PassFailure("Unavailable", "no answer", NOW - 252, NOW - 13, 4),
            "passes fail for 4m12s: Unavailable: no answer",
        ),
        (
            PassFailure("StoreError", "x", NOW - 60, NOW - 13, 2),
            "passes fail for 1m: StoreError: x",
        ),
    ],
)
def test_health_of_a_failing_cluster_says_since_when(
    failure: PassFailure, health: str, store: Store, capsys: Said
) -> None:
    lease = store.leases.acquire(SHOP, "another", 60)
    store.leases.release(lease, passed_at=NOW - 13, failure=failure)
    assert health in printed(capsys, "get")[1]


def test_health_of_a_cluster_without_passes_says_for_how_long(store: Store, capsys: Said) -> None:
    store.scan_states.passed(SHOP, NOW - 900)
    assert "no passes for 15m" in printed(capsys, "get")[1]


def test_pause_of_a_cluster_is_in_its_mode_and_above_the_table(
    store: Store, capsys: Said, screen: Callable[..., list[str]]
) -> None:
    store.pauses.change(
        SHOP, lambda _: (Pause(until=NOW + 3600, since=NOW, reason="sale", by="me"),)
    )
    assert main(["get"]) == 0
    said = capsys.readouterr()
    assert said.err == "shop: PAUSED until 2026-11-18T12:06:40Z by me: sale\n"
    assert said.out.splitlines()[1].split()[:3] == ["shop", "active", "(paused)"]
    screen("get")
    assert capsys.readouterr().err == "shop: PAUSED until 13:06 by me: sale\n"


def test_policy_that_is_not_valid_is_unreadable_with_its_mistake(
    store: Store, capsys: Said
) -> None:
    store.policies.put(SHOP, GOOD.replace("active", "on"), "d3", 1)
    assert "not read: spec.mode: 'on' is unknown" in printed(capsys, "get")[1]


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("clusters", "cluster", "cl"), "cluster"),
        (("groups", "group", "gr"), "group"),
        (("nodes", "node", "no"), "node"),
        (("pods", "pod", "po"), "pod"),
        (("operations", "operation", "op"), "operation"),
        (("policy", "policies"), "policy"),
    ],
)
def test_things_have_the_short_names_of_kubectl(
    words: tuple[str, ...], kind: str, store: Store, capsys: Said
) -> None:
    del store
    answers = [printed(capsys, "get", word, SHOP, "-o", "name") for word in words]
    assert answers[0]
    assert {line.partition("/")[0] for line in answers[0]} == {kind}
    assert answers == [answers[0]] * len(words)


def test_old_word_for_the_circuit_breaker_is_taken_with_a_note(store: Store, capsys: Said) -> None:
    del store
    assert main(["get", "brake", SHOP]) == 0
    old = capsys.readouterr()
    assert main(["get", "breaker", SHOP]) == 0
    new = capsys.readouterr()
    assert (
        old.out
        == new.out
        == "shop: not tripped; nodes removed in the last hour: 0, pods moved: 0\n"
    )
    assert (old.err, new.err) == ("note: brake is an old word; write breaker\n", "")


def test_cluster_may_be_omitted_where_there_is_only_one(store: Store, capsys: Said) -> None:
    assert printed(capsys, "get", "nodes") == printed(capsys, "get", "nodes", SHOP)
    store.policies.put(LAB, GOOD.replace("prod-geneva", LAB), "d2", None)
    assert (
        refusal(capsys, "get", "nodes")
        == "outscaler get nodes: needs a cluster's name; write one of lab, shop, or -A for all "
        "clusters"
    )


def test_cluster_that_is_needed_where_there_is_none_is_an_error(empty: Store, capsys: Said) -> None:
    del empty
    assert "store a policy with outscaler apply" in refusal(capsys, "get", "policy")


def test_names_select_rows_and_misspelt_ones_are_refused(store: Store, capsys: Said) -> None:
    del store
    assert [row["node"] for row in answer(capsys, "get", "node", SHOP, "idle")["nodes"]] == ["idle"]
    assert [row["node"] for row in answer(capsys, "get", "node/idle", SHOP)["nodes"]] == ["idle"]
    assert [row["name"] for row in answer(capsys, "get", "groups", SHOP, BURST, "web")] == [
        "burst",
        "web",
    ]
    assert [row["pod"] for row in answer(capsys, "get", "po", SHOP, "huge-00003")["pods"]] == [
        "default/huge-00003"
    ]
    assert (
        refusal(capsys, "get", "group", SHOP, "wep")
        == "NAME: no group is called 'wep'; did you mean web?"
    )
    assert (
        refusal(capsys, "get", "cluster", "shp")
        == "NAME: no cluster is called 'shp'; did you mean shop?"
    )


# -- forms -----------------------------------------------------------------------------------------


def test_options_may_stand_between_the_names(store: Store, capsys: Said) -> None:
    del store
    assert printed(capsys, "get", "nodes", "-o", "name", SHOP, "idle") == ["node/idle"]


def test_forms_show_the_same_answer(store: Store, capsys: Said) -> None:
    del store
    data = answer(capsys, "get", "nodes", SHOP)
    assert yaml.safe_load("\n".join(printed(capsys, "get", "nodes", SHOP, "-o", "yaml"))) == data
    assert printed(capsys, "get", "nodes", SHOP, "-o", "name") == ["node/busy", "node/idle"]
    assert printed(capsys, "get", "nodes", SHOP, "-o", "jsonpath={.nodes[*].node}") == ["busy idle"]
    assert printed(
        capsys, "get", "groups", SHOP, "-o", 'jsonpath={range .items[*]}{.name}={.max}{"\\n"}{end}'
    ) == [
        "burst=3",
        "web=5",
    ]
    assert printed(capsys, "get", "breaker", SHOP, "-o", "jsonpath={.on}") == ["false"]


def test_json_of_groups_has_the_former_keys_and_those_of_the_table(
    store: Store, capsys: Said
) -> None:
    del store
    burst, web = answer(capsys, "get", "groups", SHOP)
    assert (burst["group"], burst["backoff"]["class"], burst["request"]) == (
        BURST,
        "OutOfStock",
        None,
    )
    assert (web["target"], web["lastAdd"], web["name"], web["ready"], web["coming"]) == (
        4,
        None,
        "web",
        2,
        2,
    )
    assert (web["min"], web["max"], web["cpu"], web["price"], web["status"]["word"]) == (
        0,
        5,
        78,
        0.25,
        "growing",
    )


def test_group_that_is_only_remembered_is_still_shown(store: Store, capsys: Said) -> None:
    lease = store.leases.acquire(SHOP, "another", 60)
    before = store.memory.load(SHOP)
    groups = {**before.groups, "pool/gone": GroupMemory(target=1)}
    store.memory.save(SHOP, before, msgspec.structs.replace(before, groups=groups), (), lease)
    assert [row["group"] for row in answer(capsys, "get", "groups", SHOP)] == [
        BURST,
        "web",
        "pool/gone",
    ]
    assert printed(capsys, "get", "groups", SHOP, "pool/gone")[1].split() == [
        "gone",
        *["-"] * 5,
        *["not", "in", "the", "last", "decision"],
    ]


def test_json_of_nodes_has_the_former_keys_and_those_of_the_table(
    store: Store, capsys: Said
) -> None:
    del store
    busy, idle = answer(capsys, "get", "nodes", SHOP)["nodes"]
    assert (busy["decision"], busy["reason"]["code"], idle["pod"]) == (
        "stays",
        "NotUnderutilized",
        "default/wide-00001",
    )
    assert (busy["groupName"], busy["zone"], busy["created"]) == (
        "web",
        "ch-gva-2",
        "2026-11-17T10:06:40Z",
    )


def test_json_of_clusters_says_what_the_table_says(store: Store, capsys: Said) -> None:
    del store
    (row,) = answer(capsys, "get")
    assert (row["health"], row["mode"], row["nodes"], row["coming"], row["waiting"]) == (
        "ok",
        "active",
        2,
        0,
        3,
    )


# -- selectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "selector", "names"),
    [
        ("groups", "provider=exoscale", ["burst"]),
        ("groups", "provider==exoscale", ["burst"]),
        ("groups", "provider!=exoscale", ["web"]),
        ("groups", "zone=ch-gva-2", ["burst", "web"]),
        ("groups", "zone=ch-gva-2,machine=c4.large", ["web"]),
        ("groups", "state=backing-off", ["burst"]),
        ("groups", "state=backing off", ["burst"]),
        ("nodes", "group=web", ["busy", "idle"]),
        ("nodes", "decision!=stays", []),
        ("pods", "decision=no-place,namespace=default", ["default/huge-00003"]),
        ("clusters", "mode=active", ["shop"]),
        ("operations", "kind=grow,group=web", ["grow-1"]),
    ],
)
def test_selector_selects_rows(
    what: str, selector: str, names: list[str], store: Store, capsys: Said
) -> None:
    del store
    cluster_name = [] if what == "clusters" else [SHOP]
    lines = printed(capsys, "get", what, *cluster_name, "-l", selector, "-o", "name")
    assert [line.partition("/")[2] for line in lines] == names


def test_selector_with_an_unknown_key_is_answered_with_the_keys(store: Store, capsys: Said) -> None:
    del store
    said = refusal(capsys, "get", "groups", SHOP, "-l", "colour=red")
    assert (
        said == "-l: groups have no 'colour'; select by machine, name, provider, spot, state, zone"
    )
    assert "'web' is not KEY=VALUE" in refusal(capsys, "get", "groups", SHOP, "-l", "web")
    assert "belongs to tables, and policy is none" in refusal(
        capsys, "get", "policy", SHOP, "-l", "mode=active"
    )


def test_selection_without_a_row_says_so(store: Store, capsys: Said) -> None:
    del store
    assert printed(capsys, "get", "groups", SHOP, "-l", "state=paused") == []
    assert main(["get", "groups", SHOP, "-l", "state=paused"]) == 0
    assert capsys.readouterr().err == "no group has state=paused\n"
    assert answer(capsys, "get", "groups", SHOP, "-l", "state=paused") == []


# -- changed rows ----------------------------------------------------------------------------------


STATES = TableKind[tuple[str, str]](
    word="node",
    name=lambda item: item[0],
    data=lambda item: {"name": item[0], "state": item[1]},
    empty="",
    columns=(
        Column("node", lambda item: item[0]),
        Column("state", lambda item: item[1]),
    ),
)


def listing(**states: str) -> Listing:
    return Listing(STATES, tuple(STATES.row(item, NOW) for item in states.items()))


def watched(output: str, *answers: Listing | Exception) -> None:
    """Watches a table that gives these answers, one per round."""
    rest = iter(answers)
    waits: list[None] = []

    def read() -> Listing:
        reply = next(rest)
        if isinstance(reply, Exception):
            raise reply
        return reply

    assert get.watch(read, output, lambda: waits.append(None), rounds=len(answers)) == 0
    assert len(waits) == len(answers) - 1


def test_watch_prints_the_table_and_then_rows_that_change(capsys: Said) -> None:
    first = listing(busy="stays", idle="stays")
    watched(
        "table",
        first,
        first,
        listing(busy="stays", idle="removed", fresh="stays"),
        listing(busy="stays"),
    )
    assert capsys.readouterr().out.splitlines() == [
        "NODE   STATE",
        "busy   stays",
        "idle   stays",
        "idle   removed",
        "fresh   stays",
        "fresh   gone",
        "idle   gone",
    ]


def test_watch_prints_changed_rows_as_json_lines_and_names(capsys: Said) -> None:
    watched("json", listing(a="1", b="1"), listing(a="1", b="2"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["name"], line["state"]) for line in lines] == [("a", "1"), ("b", "1"), ("b", "2")]
    watched("name", listing(a="1"), listing(a="2", b="1"))
    assert capsys.readouterr().out.split() == ["node/a", "node/a", "node/b"]
    watched("jsonpath={[*].state}", listing(a="1"), listing(a="1"), listing(a="2", b="3"))
    assert capsys.readouterr().out.splitlines() == ["1", "2 3"]


def test_watch_survives_a_table_that_does_not_answer(capsys: Said) -> None:
    watched("table", listing(a="1"), StoreError("throttled"), listing(a="2"))
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == "a      2"
    assert "the table cannot be read now, trying again: throttled" in said.err
    with pytest.raises(StoreError):
        watched("table", StoreError("no table"))


def test_watch_ends_with_ctrl_c_and_its_exit_code(
    store: Store, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store
    waits = []

    def interrupted(seconds: float) -> None:
        waits.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    assert main(["get", "nodes", SHOP, "-w", "--interval", "10s"]) == 130
    said = capsys.readouterr()
    assert waits == [10.0]
    assert len(said.out.splitlines()) == 3
    assert len(said.err.splitlines()) == 1


def test_time_that_passes_is_no_change(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    del store
    clock = [NOW]
    monkeypatch.setattr("time.time", lambda: clock[0])

    def later(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > NOW + 12:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", later)
    for what, rows in (("clusters", 1), ("groups", 2), ("operations", 1)):
        clock[0] = NOW
        capsys.readouterr()
        assert main(["get", what, *([] if what == "clusters" else [SHOP]), "-w"]) == 130
        assert len(capsys.readouterr().out.splitlines()) == rows + 1, what


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5s"),
        (400, "6m40s"),
        (3600, "1h"),
        (36_000, "10h"),
        (90_000, "1d1h"),
        (1_000_000, "11d"),
    ],
)
def test_age_has_the_units_of_kubectl(seconds: float, text: str) -> None:
    assert age(NOW - seconds, NOW) == text
    assert age(0.0, NOW) == ""
