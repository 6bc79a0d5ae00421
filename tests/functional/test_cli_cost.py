"""`outscaler cost`: the stored bill, the bill of a folder, savings and moves, and
the cost of another policy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from chalicelib.cli.main import main
from chalicelib.journal import carry_over
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.journal import decision, plan_entry
from chalicelib.model.cluster_bill import ClusterBill, SpotCost
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.model.plan import ConsolidationReport, HorizonReport, Move, MovePurchase
from chalicelib.plan.cost_breakdown import cluster_bill
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.replay.recorded_decision import RecordedDecision, encode, key_of
from chalicelib.store import Store
from chalicelib.store.gauge_ring import GaugePoint
from chalicelib.views.cost_view import GIVEN_BACK, SAVED_AGAINST
from tests.builders import ClusterBuilder, cluster, node
from tests.functional import saved_cluster
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.functional.conftest import ACCOUNT_TABLE
from tests.operations import new_operation
from tests.unit.policy.policy_documents import GOOD

Said = pytest.CaptureFixture[str]
SHOP = "shop"


def shop() -> ClusterBuilder:
    builder = (
        cluster()
        .node("w-0", "4", "16Gi", group="workers")
        .node("w-1", "4", "16Gi", group="workers")
    )
    builder.node("alone", "2", "8Gi").group(
        "workers", max=5, price=0.2, currency="EUR", template=node("t", "4", "16Gi")
    )
    builder.running("w-0", 2, "1", "4Gi", owner="web", namespace="front", kind="StatefulSet")
    return builder.running("w-1", 1, "1", "4Gi", owner="db", namespace="back", kind="StatefulSet")


def bill_of(builder: ClusterBuilder) -> ClusterBill:
    bill = cluster_bill(build_cluster_state(builder.snapshot(), Policy(SHOP), Memory(), NOW))
    assert bill is not None
    return msgspec.structs.replace(bill, at=NOW - 240)


def keep(store: Store, left: CarryOver) -> None:
    """Store what a pass carries over."""
    lease = store.leases.acquire(SHOP, "pass", 60)
    store.leases.release(lease, carry_over=carry_over.write(left), succeeded=True)


def change(kind: OperationKind, name: str, ago: float, **fields: Any) -> None:
    """Store an operation that went well."""
    given = {"group": "workers", "price": 200_000, "currency": "EUR", **fields}
    planned = new_operation(
        id=name,
        cluster=SHOP,
        provider="test",
        kind=kind,
        plan="p",
        created_at=NOW - ago,
        **given,
    )
    clock = iter((NOW - ago,) * 50)
    early = Store(ACCOUNT_TABLE, clock=lambda: next(clock))
    lease = early.leases.acquire(SHOP, "pass", 60)
    early.memory.save(SHOP, early.memory.load(SHOP), Memory(), (planned,), lease)
    early.leases.release(lease)
    running = early.operations.claim(SHOP, name, "act", 60)
    early.operations.advance(running, running.with_status(state=OperationState.SUCCEEDED), "act")


@pytest.fixture
def empty(account: Store) -> Store:
    """A cluster with a policy and without a pass."""
    account.policies.put(SHOP, GOOD.replace("prod-geneva", SHOP), "d1", None)
    return account


@pytest.fixture
def store(empty: Store) -> Store:
    """A cluster with a bill, a removal of two hours ago, and a decision with moves."""
    overview = ClusterOverview(
        NOW - 240, (GroupOverview("workers", "Workers"),), bill=bill_of(shop())
    )
    empty.gauge_rings.add(SHOP, GaugePoint(NOW, 3, 0), overview, seen=0.0)
    moves = (
        Move(("w-9",), (), 0.1, 0.1, 2.0, 0.05, 1.0, "shadow", currency="EUR"),
        Move(
            ("w-1", "w-0"),
            (MovePurchase("small", 1, 0.1),),
            0.4,
            0.3,
            4.0,
            0.2,
            2.5,
            "shadow",
            currency="EUR",
        ),
    )
    plan = msgspec.structs.replace(
        shop().plan(), at=NOW - 60, cluster=SHOP, consolidation=ConsolidationReport("shadow", moves)
    )
    empty.journal.append(SHOP, plan_entry(plan))
    change(OperationKind.DELETE_NODES, "remove-1", 7200, targets=(RemovalTarget("w-2", "w-2"),))
    lease = empty.leases.acquire(SHOP, "pass", 60)
    left = carry_over.write(CarryOver(decided=NOW - 60))
    empty.leases.release(
        lease, passed_at=NOW - 13, carry_over=left, decision=decision(plan), succeeded=True
    )
    return empty


def printed(capsys: Said, *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


def answer(capsys: Said, *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "-o", "json"))


def refusal(capsys: Said, *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    return capsys.readouterr().err.strip()


def test_spot_has_a_line_of_its_own(store: Store, capsys: Said) -> None:
    seen = store.gauge_rings.overview(SHOP)
    assert seen.bill is not None
    assert "Spot" not in printed(capsys, "cost", SHOP)
    (bill,) = seen.bill.bills
    spot = msgspec.structs.replace(bill, spot=SpotCost(3, 2, 280_000, 1, 140_000))
    changed = msgspec.structs.replace(seen, bill=msgspec.structs.replace(seen.bill, bills=(spot,)))
    store.gauge_rings.add(SHOP, GaugePoint(NOW + 3000, 2, 0), changed, seen=0.0)
    line = (
        "Spot, per hour: 0.2800 EUR saved by 3 spot nodes (the price of 2 on demand is known), "
        "0.1400 EUR more for 1 node bought on demand in place of spot"
    )
    assert line in printed(capsys, "cost", SHOP).splitlines()
    assert answer(capsys, "cost", SHOP)["bills"][0]["spot"] == {
        "nodes": 3,
        "compared": 2,
        "saved": 0.28,
        "fallbackNodes": 1,
        "premium": 0.14,
    }


def test_price_at_the_end_of_the_present_plan_has_a_line(store: Store, capsys: Said) -> None:
    assert answer(capsys, "cost", SHOP)["endOfPlan"] is None
    horizon = HorizonReport("h1", NOW - 60, 0.4, 0.2, {"w-1": 1}, ("w-1",), 1, "EUR")
    report = ConsolidationReport("remove", horizon=horizon)
    plan = msgspec.structs.replace(shop().plan(), at=NOW - 50, cluster=SHOP, consolidation=report)
    store.journal.append(SHOP, plan_entry(plan))
    lease = store.leases.acquire(SHOP, "pass", 60)
    left = carry_over.write(CarryOver(decided=NOW - 50))
    store.leases.release(
        lease, passed_at=NOW - 3, carry_over=left, decision=decision(plan), succeeded=True
    )
    words = (
        "Nodes that leave: 1 of 3, 1 marked; the others stay. Price at the end: 0.20 EUR an hour, "
        "now 0.40 EUR."
    )
    assert f"End of the present plan: {words}" in printed(capsys, "cost", SHOP).splitlines()
    end = {"currency": "EUR", "perHour": 0.2, "words": words}
    assert answer(capsys, "cost", SHOP)["endOfPlan"] == end


def test_cost_of_a_cluster_is_shown_with_savings_and_moves(store: Store, capsys: Said) -> None:
    assert (
        printed(capsys, "cost", SHOP)
        == """\
shop: 0.4000 EUR per hour for 2 machines; 1 machine without a price not included \
(2026-11-18T11:02:40Z)

WHAT FOR                                      PER HOUR   SHARE
requested by pods                               0.1500   37.5%
DaemonSets and static pods                        0.00    0.0%
reserved for the system                           0.00    0.0%
free, for headroom, rules and minimum sizes       0.00    0.0%
free, avoidable at best                         0.2500   62.5%
being drained, or without a node                  0.00    0.0%

Lower bound: 0.0500 EUR, 12.5% of the price; no choice of nodes for these pods saves more than \
0.3500 EUR

GROUP     MACHINES   PER HOUR   REQUESTED   OTHER   WANTED   AVOIDABLE   NOT USABLE
Workers          2     0.4000      0.1500    0.00     0.00      0.2500         0.00

Saved: 0.2000 EUR per hour now, 0.4000 today, 0.4000 in 7 days, 0.4000 this month (UTC)

Saved against keeping the nodes that consolidation, a schedule or low use removed, until as many \
are bought again, at most 24 hours; spot nodes against their price on demand.

Best moves
MOVE                          SAVES PER HOUR   SCORE   STATE
w-1, w-0 go, for 1 of small       0.3000 EUR    2.50   shadow
w-9 goes                          0.1000 EUR    1.00   shadow

Machines only: without disks, load balancers, traffic and the vendor's fees.
"""
    )


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        (
            "namespace",
            ["front         0.1000   25.0%   0.1667", "back          0.0500   12.5%   0.0833"],
        ),
        (
            "owner",
            [
                "front/StatefulSet/web     0.1000   25.0%   0.1667",
                "back/StatefulSet/db       0.0500   12.5%   0.0833",
            ],
        ),
        (
            "pool",
            ["Workers          2     0.4000      0.1500    0.00     0.00      0.2500         0.00"],
        ),
    ],
)
def test_cost_is_shown_by_name(store: Store, capsys: Said, key: str, lines: list[str]) -> None:
    shown = printed(capsys, "cost", SHOP, "--by", key).splitlines()
    head = next(at for at, line in enumerate(shown) if line.startswith(key.upper()))
    assert shown[head + 1 : head + 1 + len(lines)] == lines


def test_cost_in_wide_form_has_every_table(store: Store, capsys: Said) -> None:
    heads = [
        line.split()[0]
        for line in printed(capsys, "cost", SHOP, "-o", "wide").splitlines()
        if line.isupper()
    ]
    assert [head for head in heads if head in ("GROUP", "POOL", "NAMESPACE", "OWNER")] == [
        "GROUP",
        "POOL",
        "NAMESPACE",
        "OWNER",
    ]


def test_cost_for_programs_has_stable_keys(store: Store, capsys: Said) -> None:
    data = answer(capsys, "cost", "--days", "1")  # the only cluster
    [bill] = data.pop("bills")
    assert (bill["currency"], bill["lowerBound"], bill["efficiency"]) == ("EUR", 0.05, 0.125)
    assert (
        bill["perHour"]["paid"]
        == sum(amount for name, amount in bill["perHour"].items() if name != "paid")
        == 0.4
    )
    assert bill["groups"][0]["name"] == "workers"
    assert bill["owners"][0] == {
        "name": "front/StatefulSet/web",
        "names": 1,
        "workload": 0.1,
        "idle": 0.166667,
    }
    assert [move["saves"] for move in data.pop("moves")] == [0.3, 0.1]
    assert data == {
        "cluster": SHOP,
        "at": "2026-11-18T11:02:40Z",
        "unpriced": 1,
        "savings": [
            {
                "currency": "EUR",
                "perHour": 0.2,
                "today": 0.4,
                "sevenDays": 0.4,
                "month": 0.4,
                "givenBackToday": 0.0,
                "givenBackSevenDays": 0.0,
                "givenBackMonth": 0.0,
                "spotToday": 0.0,
                "spotSevenDays": 0.0,
                "spotMonth": 0.0,
            }
        ],
        "savedAgainst": SAVED_AGAINST,
        "unpricedRemovals": 0,
        "endOfPlan": None,
        "savingsAt": "2026-11-18T11:06:40Z",
        "note": "Machines only: without disks, load balancers, traffic and the vendor's fees.",
        "savedInDays": {
            "days": 1,
            "byCurrency": {"EUR": 0.4},
            "givenBackByCurrency": {"EUR": 0.0},
        },
    }


@pytest.mark.parametrize(
    ("days", "times"),
    [
        ("7", ["0.4000 today", "0.4000 in 7 days", "0.4000 this month (UTC)"]),
        (
            "30",
            ["0.4000 today", "0.4000 in 30 days", "0.4000 in 7 days", "0.4000 this month (UTC)"],
        ),
    ],
)
def test_savings_of_days_are_printed_once(
    store: Store, capsys: Said, days: str, times: list[str]
) -> None:
    (line,) = lines_of(printed(capsys, "cost", SHOP, "--days", days), "Saved: ")
    assert line == f"Saved: 0.2000 EUR per hour now, {', '.join(times)}"


def lines_of(text: str, begin: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(begin)]


def test_burst_nodes_are_given_back_and_apart_from_what_is_saved(
    store: Store, capsys: Said
) -> None:
    change(OperationKind.SCALE_UP, "grow-1", 5 * 3600, from_size=1, to_size=3)
    text = printed(capsys, "cost", SHOP)
    assert lines_of(text, "Saved: ")[0].startswith("Saved: 0.00 EUR per hour now, 0.00 today")
    (line,) = lines_of(text, "Given back: ")
    amounts, _, words = line.removeprefix("Given back: ").partition(": ")
    assert amounts == "0.4000 EUR today, 0.4000 in 7 days, 0.4000 this month (UTC)"
    assert words == GIVEN_BACK
    (sums,) = answer(capsys, "cost", SHOP)["savings"]
    assert (sums["today"], sums["givenBackToday"]) == (0.0, 0.4)


def test_savings_of_two_currencies_are_two_lines(store: Store, capsys: Said) -> None:
    target = (RemovalTarget("x", "x"),)
    other = {"targets": target, "currency": "CNY", "price": 1_000_000, "group": "other"}
    change(OperationKind.DELETE_NODES, "remove-2", 3600, **other)
    starts = [line.split(",")[0] for line in lines_of(printed(capsys, "cost", SHOP), "Saved: ")]
    assert starts == ["Saved: 1.00 CNY per hour now", "Saved: 0.2000 EUR per hour now"]


def test_removals_without_a_price_count_nothing_and_are_said(store: Store, capsys: Said) -> None:
    target = (RemovalTarget("x", "x"),)
    unknown = {"targets": target, "currency": "", "price": 0, "group": "other"}
    change(OperationKind.DELETE_NODES, "remove-2", 3600, **unknown)
    text = printed(capsys, "cost", SHOP)
    assert "1 node removed in 7 days has no price to compare, and counts nothing." in text
    assert answer(capsys, "cost", SHOP)["unpricedRemovals"] == 1


def test_nothing_is_saved_since_the_last_pass_where_passes_have_stopped(
    store: Store, capsys: Said
) -> None:
    keep(store, CarryOver(ring_at=NOW - 3600))
    (line,) = lines_of(printed(capsys, "cost", SHOP), "Saved: ")
    assert line.startswith("Saved: 0.00 EUR per hour now, 0.2000 today")


def test_what_spot_nodes_saved_is_part_of_what_is_saved(store: Store, capsys: Said) -> None:
    keep(store, CarryOver(ring_at=NOW - 60, spot_open={"EUR": 500_000.0}))
    text = printed(capsys, "cost", SHOP)
    assert "0.9000 today" in lines_of(text, "Saved: ")[0]
    assert lines_of(text, "Of it by spot nodes: ") == [
        "Of it by spot nodes: 0.5000 EUR today, 0.5000 in 7 days, 0.5000 this month (UTC)"
    ]


def test_cost_without_a_bill_says_why(empty: Store, capsys: Said) -> None:
    assert (
        refusal(capsys, "cost", SHOP)
        == "shop: no pass has made a bill yet; repeat it after the next pass"
    )
    empty.gauge_rings.add(SHOP, GaugePoint(NOW, 3, 0), ClusterOverview(NOW), seen=0.0)
    assert refusal(capsys, "cost", SHOP) == (
        "shop: no machine has a price; add spec.prices to its policy "
        "(https://github.com/outscaler/outscaler/blob/main/docs/bill.md)"
    )
    assert refusal(capsys, "cost", "shpo") == "shpo: no such cluster; did you mean shop?"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--by", "node"), "'node'"),
        (("--days", "400"), "'400' is not a number from 1 to 35"),
        (("--policy", "x.yaml"), "--policy: belongs to a folder, and shop is none; omit it"),
        (("--with-policy", "x.yaml"), "--from: is not given, and OUTSCALER_DECISIONS is not set"),
    ],
)
def test_cost_refuses_wrong_arguments(
    store: Store, capsys: Said, words: tuple[str, ...], says: str
) -> None:
    assert says in refusal(capsys, "cost", SHOP, *words)


# -- a folder


def test_cost_of_a_saved_cluster_is_computed_from_its_files(tmp_path: Path, capsys: Said) -> None:
    policy = yaml.safe_load(GOOD)
    policy["spec"]["prices"] = {"cpu": 0.03, "memory": 0.004}
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    folder = str(saved_cluster.shop(tmp_path / "shop"))
    data = answer(capsys, "cost", folder, "--policy", str(file))
    [bill] = data["bills"]
    assert bill["perHour"]["paid"] > bill["perHour"]["workload"] > 0
    assert [row["name"] for row in bill["owners"]] == [
        "shop/StatefulSet/db",
        "shop/Deployment/api",
        "shop/(no controller)",
    ]
    assert data["savings"] == []
    assert "no machine has a price" in refusal(capsys, "cost", folder)
    assert "--days: needs the operations of a deployment" in refusal(
        capsys, "cost", folder, "--days", "1"
    )


# -- another policy


@pytest.fixture
def decisions(tmp_path: Path) -> Path:
    """Three decisions within twenty minutes about two half-empty nodes that nothing removes."""
    place = tmp_path / "decisions"
    for minutes in (60, 50, 40):
        now = NOW - minutes * 60
        stays = msgspec.structs.replace(Options(), scale_down_enabled=False)
        own = Policy(SHOP, options=stays, prices=NodePrices(cpu=0.05, currency="EUR"))
        snapshot = msgspec.structs.replace(shop().snapshot(), cluster=SHOP, taken_at=now)
        plan, _ = plan_cluster(snapshot, own, Memory(), now, 1)
        recorded = RecordedDecision(snapshot, own, Memory(), now, 1, plan)
        file = place / key_of(recorded).path()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(recorded))
    return place


def test_cost_of_another_policy_is_that_of_its_own_nodes(
    decisions: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    policy = yaml.safe_load(GOOD)
    policy["spec"]["options"] = {
        "scaleDownUnneededTime": "2m",
        "scaleDownUtilizationThreshold": 0.6,
    }
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump(policy))
    words = ("cost", SHOP, "--with-policy", str(file), "--from", str(decisions))
    data = answer(capsys, *words)
    recorded, given = data["recorded"], data["withPolicy"]
    assert (data["decisions"], data["leftOut"], data["hours"]) == (3, 0.0, 0.3333)
    # ten cores for twenty minutes
    assert recorded["cost"] == {"EUR": pytest.approx(0.5 / 3, abs=1e-6)}
    assert (recorded["nodesRemoved"], given["nodesRemoved"], given["podsMoved"]) == (0, 1, 1)
    assert given["cost"]["EUR"] < recorded["cost"]["EUR"]
    assert answer(capsys, *words) == data, "the same every time"
    shown = printed(capsys, *words)
    assert "recorded policy   given policy" in shown.lower()
    assert (
        "Only decisions with changes are recorded; spans of more than 15 minutes without any "
        "are left out, 0%"
    ) in shown
    assert "in 1 day" in refusal(capsys, "cost", "lab", *words[2:], "--days", "1")
