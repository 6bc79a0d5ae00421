"""What `outscaler get pools` shows: groups and nodes of each declaration, the next machine, and
what keeps it from buying more. Metrics have the counts."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.cli.columns import POOLS
from chalicelib.journal.metrics import METRICS, PAGE_ONLY, parts
from chalicelib.journal.pool_overview import pool_overviews
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.overview import ClusterOverview, PoolOverview
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.managed_pools import ManagedPool, PoolLimits, Requirements
from chalicelib.store.errors import StoreUnavailable
from chalicelib.views.managed_pools import pool_rows
from tests.builders import NOW
from tests.unit.journal.support import RecordFixture, plan
from tests.unit.plan.managed_offers import GENERAL, OfferedCluster, entry


def seen(case: OfferedCluster, memory: Memory | None = None, **changes: Any) -> PoolOverview:
    snapshot = msgspec.structs.replace(case.offered_snapshot(), **changes)
    state = build_cluster_state(snapshot, case.offered_policy(), memory or Memory(), NOW)
    (row,) = pool_overviews(state)
    return row


def pool(**fields: Any) -> ManagedPool:
    return msgspec.structs.replace(GENERAL, **fields)


def cells(row: PoolOverview) -> dict[str, str]:
    (shown,) = pool_rows([row])
    titles = [column.title for column in POOLS.columns]
    return dict(zip(titles, POOLS.row(shown, NOW).cells, strict=True))


def test_row_has_groups_nodes_their_price_and_the_cheapest_machine() -> None:
    row = seen(OfferedCluster().opened("s4", 2).opened("s8"))
    assert (row.candidates, row.open_groups, row.live_groups, row.nodes) == (5, 2, 1, 2)
    assert (row.price, row.next_machine, row.next_price) == (0.38, "s2 z1 on-demand", 0.1)
    assert cells(row) == {
        "pool": "general",
        "provider": "test",
        "candidates": "5",
        "open": "2",
        "live": "1",
        "nodes": "2",
        "price an hour": "0.38 EUR",
        "next machine": "s2 z1 on-demand, 0.10 EUR",
        "held by": "-",
    }


def test_limit_that_is_reached_holds_a_declaration_and_nothing_is_next() -> None:
    row = seen(OfferedCluster(pool(limits=PoolLimits(nodes=2))).opened("s4", 2))
    assert row.next_machine == ""
    assert "general: nodes 2 of 2" in row.held
    assert cells(row)["next machine"] == "-"


def test_declaration_with_all_its_groups_grows_only_those_that_are_open() -> None:
    row = seen(OfferedCluster(pool(max_pools=1)).opened("s8", 1))
    assert row.next_machine == "s8 z1 on-demand"
    assert "as many groups as it may have" in row.held


def test_declaration_whose_types_the_vendor_refuses_says_so() -> None:
    case = OfferedCluster().opened("s8", 1)
    failed = Backoff(300.0, NOW + 86400.0, NOW, cls="InvalidRequest", code="400")
    candidates = case.groups_of_pools()[1]
    memory = Memory(groups={group.id: GroupMemory(backoff=failed) for group in candidates})
    row = seen(case, memory)
    assert row.next_machine == "s8 z1 on-demand"
    assert "the vendor refuses 4 machine types of general: 400" in row.held


def test_machine_that_is_backed_off_is_not_the_next_one() -> None:
    case = OfferedCluster(catalogue=(entry("s2"), entry("s4")))
    cheapest = min(case.groups_of_pools()[1], key=lambda group: group.price)
    failed = Backoff(until=NOW + 600, duration=600, last_failed=NOW, cls="OutOfStock")
    memory = Memory(groups={cheapest.id: GroupMemory(backoff=failed)})
    assert seen(case, memory).next_machine == "s4 z1 on-demand"


def test_problem_of_a_catalogue_holds_a_declaration() -> None:
    case = OfferedCluster()
    (selection,) = case.managed().selections()
    broken = msgspec.structs.replace(selection, problem="workers is gone")
    assert seen(case, selections=(broken,)).held == "workers is gone"
    assert seen(case, selections=()).held == "the provider was not read"


def test_warning_of_a_declaration_is_shown_while_it_can_buy() -> None:
    case = OfferedCluster()
    (selection,) = case.managed().selections()
    warned = msgspec.structs.replace(selection, warning="workers is gone")
    row = seen(case, selections=(warned,))
    assert (row.held, row.next_machine) == ("workers is gone", "s2 z1 on-demand")


def test_overview_of_an_earlier_release_has_no_pools() -> None:
    stored = msgspec.json.encode([NOW, [], [], 0, "EUR", None])
    assert msgspec.json.decode(stored, type=ClusterOverview).pools == ()


def recorded(case: OfferedCluster, **changes: Any) -> dict[str, float]:
    """The gauges of managed pools that a pass leaves."""
    snapshot = msgspec.structs.replace(case.offered_snapshot(), **changes)
    state = build_cluster_state(snapshot, case.offered_policy(), Memory(), NOW)
    scene = RecordFixture()
    scene.passes(plan(NOW), snapshot=snapshot, state=state)
    return {name: value for name, value in scene.left.gauges.items() if "pool" in name}


def test_gauges_of_each_declaration_are_on_the_page_of_metrics_only() -> None:
    spot = pool(name="cheap", requirements=Requirements(families=("s",)))
    gauges = recorded(OfferedCluster(GENERAL, spot).opened("s4", 2).opened("s8"))
    cheap = "pool=cheap"
    assert gauges == {
        "managed_pool_candidates_count;pool=general": 5.0,
        "managed_pool_groups_count;pool=general": 2.0,
        "managed_pool_nodes_count;pool=general": 2.0,
        "managed_pool_cost_per_hour;pool=general;currency=EUR": 0.38,
        f"managed_pool_candidates_count;{cheap}": 3.0,
        f"managed_pool_groups_count;{cheap}": 0.0,
        f"managed_pool_nodes_count;{cheap}": 0.0,
        f"managed_pool_cost_per_hour;{cheap};currency=EUR": 0.0,
    }
    table = {metric.name: metric.labels for metric in METRICS}
    for series in gauges:
        name, labels = parts(series)
        assert (table[name], name in PAGE_ONLY) == (tuple(labels), True)


def test_declaration_whose_provider_was_not_read_has_no_gauges() -> None:
    assert recorded(OfferedCluster().opened("s4", 2), selections=()) == {}


def test_cluster_without_declarations_has_no_gauges_of_pools() -> None:
    case = OfferedCluster()
    case.pools = ()
    case.node("hand", "4", "8Gi")
    assert recorded(case) == {}


def test_decision_is_stored_where_its_machines_could_not_be() -> None:
    case = OfferedCluster().waiting(1, 64, 4)
    snapshot, (decided, _) = case.offered_snapshot(), case.decided()
    state = build_cluster_state(snapshot, case.offered_policy(), Memory(), NOW)
    scene = RecordFixture()
    scene.journal.offers_error = StoreUnavailable("down")
    scene.passes(decided, snapshot=snapshot, state=state)
    (entry_of_plan,) = scene.journal.entries
    assert entry_of_plan.fits is None
    assert scene.trouble == "offers: StoreUnavailable: down"
    assert scene.left.offers == ""

    scene.journal.offers_error = None
    scene.passes(msgspec.structs.replace(decided, at=NOW + 10), snapshot=snapshot, state=state)
    assert (len(scene.journal.entries), scene.journal.writes) == (1, 1), "a quiet pass"
    case.waiting(1, 65, 4)
    scene.passes(case.decided()[0], snapshot=snapshot, state=state)
    assert (len(scene.journal.entries), scene.journal.writes) == (2, 3)
    assert scene.journal.entries[1].fits is not None
    assert list(scene.journal.offers) == [scene.left.offers]
