"""The page of a cluster says which nodes consolidation removes, how far it is, and the price at
the end.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.plan import ConsolidationReport, HorizonReport, NodeVerdict, Plan
from chalicelib.model.policy_permissions import STRICT
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.page.cluster_data import details
from chalicelib.page.views import Tile, cluster_row, tiles
from infra.emulators.example_clusters import NOW, busy_plan, decided
from tests.unit.page.test_pages import get, with_policy, words

LEAVING = ("web-1", "web-2", "gone-1")
HORIZON = HorizonReport("h1", NOW - 300, 3.13, 2.4, dict.fromkeys(LEAVING, 1), LEAVING, 2, "USD")
STAYS = Reason.of(ReasonCode.STAYS_AT_THE_END, going=2, end=2.4)


def steered(mode: str, horizon: HorizonReport | None = HORIZON) -> Plan:
    report = ConsolidationReport(mode, verdicts=(NodeVerdict("web-3", STAYS),), horizon=horizon)
    verdicts = (
        NodeVerdict(name, Reason.of(ReasonCode.NOT_UNDERUTILIZED))
        for name in ("web-1", "web-2", "web-3")
    )
    return msgspec.structs.replace(
        busy_plan(), removals=(), unneeded=(), unremovable=tuple(verdicts), consolidation=report
    )


def shown(plan: Plan) -> tuple[dict[str, Tile], str]:
    """The tiles and the text of a page."""
    store = with_policy("clusterapi: {}")
    decided(store, "mine", plan, NOW - 5)
    cluster = details(store, "mine", NOW, STRICT)
    assert cluster is not None
    row = cluster_row(cluster.summary, NOW)
    figures = {tile.title: tile for tile in tiles(cluster, row, NOW)}
    return figures, words(get(store, "/clusters/mine"))


def test_page_has_a_tile_of_what_leaves_and_stays_how_far_it_is_and_the_price() -> None:
    plan = steered("full")
    figures, page = shown(plan)
    staying = plan.health.registered - 2
    note = f"{staying} stay · 2 marked · 1 of 3 gone · at the end $2.40 an hour"
    assert figures["Nodes that leave"] == Tile("Nodes that leave", "2", note)
    assert note in page
    assert "that stay at the end" in page


def test_steer_16_page_in_shadow_says_what_would_leave() -> None:
    figures, _ = shown(steered("shadow", msgspec.structs.replace(HORIZON, marked=0)))
    assert "marked" not in figures["Nodes that would leave"].note
    assert "would stay" in figures["Nodes that would leave"].note


def test_page_without_a_horizon_has_no_tile_of_one() -> None:
    figures, _ = shown(steered("full", None))
    assert len(figures) > 1
    assert not any("leave" in title for title in figures)
