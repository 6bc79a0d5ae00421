"""The page shows the managed pools of a cluster, and which of them need a person."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.cli.columns import POOLS
from chalicelib.model.overview import PoolOverview
from chalicelib.model.plan import Plan
from chalicelib.model.policy_permissions import STRICT
from chalicelib.model.snapshot import ALL_GROUPS_OF_PROVIDER, OF_PROVIDER, MissingData
from chalicelib.page.attention import Need, needs
from chalicelib.page.cluster_data import details
from chalicelib.page.views import UNKNOWN
from chalicelib.store import Store
from chalicelib.store.gauge_ring import GaugePoint
from infra.emulators.example_clusters import NOW, busy_plan, decided, overview
from tests.unit.page.html_check import CheckedPage
from tests.unit.page.test_pages import HOSTILE, get, text, with_policy, words

POOL = PoolOverview("general", "exoscale", 313, 4, 2, 7, 1.406, "EUR", "s2 ch-gva-2 spot", 0.1)
HELD = PoolOverview("graphics", "exoscale", 3, 1, 1, 2, 8.0, "EUR", held="graphics: nodes 2 of 2")


def store_with(*pools: PoolOverview, plan: Plan | None = None) -> Store:
    """One cluster with these managed pools."""
    store = with_policy("clusterapi: {}")
    seen = msgspec.structs.replace(overview(), pools=pools)
    store.gauge_rings.add("mine", GaugePoint(NOW - 22, 20, 0), seen, seen=0.0)
    chosen = plan if plan is not None else busy_plan()
    decided(store, "mine", msgspec.structs.replace(chosen, cluster="mine"), NOW - 22)
    return store


def table(store: Store) -> list[list[str]]:
    """The titles of the table of managed pools, and the text of its rows, cell by cell."""
    (found,) = re.findall(
        r'<table class="pools">.*?</table>', text(get(store, "/clusters/mine")), re.S
    )
    rows = re.findall(r"<tr>(.*?)</tr>", found, re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows]
    return [[re.sub(r"<[^>]+>", " ", cell).strip() for cell in row] for row in cells]


def needs_of(store: Store) -> list[Need]:
    cluster = details(store, "mine", NOW, STRICT)
    assert cluster is not None
    return needs(cluster, cluster.summary.status_at(NOW), NOW)


def changed(**fields: Any) -> PoolOverview:
    return msgspec.structs.replace(POOL, **fields)


def test_table_of_managed_pools_has_the_columns_of_get_pools() -> None:
    titles, general, graphics = table(store_with(POOL, HELD))
    assert [title.lower() for title in titles] == [column.title for column in POOLS.columns]
    assert general == [
        *("general", "Exoscale", "313", "4", "2", "7", "€1.41"),
        "s2 ch-gva-2 spot €0.10 an hour",
        UNKNOWN,
    ]
    assert graphics == [
        *("graphics", "Exoscale", "3", "1", "1", "2", "€8.00"),
        UNKNOWN,
        "graphics: nodes 2 of 2",
    ]


def test_cluster_without_declarations_has_no_table_of_managed_pools() -> None:
    page = text(get(store_with(), "/clusters/mine"))
    assert "Node groups" in page
    assert "Managed pools" not in page
    assert 'class="pools"' not in page


def test_managed_pool_that_is_held_needs_a_person() -> None:
    named = {need.subject: need for need in needs_of(store_with(POOL, HELD))}
    assert "general" not in named
    assert named["graphics"].text == "graphics: nodes 2 of 2"
    assert named["graphics"].command == "outscaler get pools mine"
    assert "graphics managed pool graphics: nodes 2 of 2" in words(
        get(store_with(POOL, HELD), "/clusters/mine")
    )


def test_managed_pool_that_opens_no_more_and_can_buy_needs_nobody() -> None:
    full = changed(held="as many groups as it may have")
    assert "general" not in {need.subject for need in needs_of(store_with(full))}


def test_vendor_that_is_not_read_stands_for_its_managed_pools() -> None:
    weakened = (ALL_GROUPS_OF_PROVIDER,)
    gap = MissingData(OF_PROVIDER + "exoscale", "key refused", affected_decisions=weakened)
    plan = msgspec.structs.replace(busy_plan(), gaps=(gap,))
    other = msgspec.structs.replace(HELD, name="metal", provider="cherryservers")
    subjects = [need.subject for need in needs_of(store_with(HELD, other, plan=plan))]
    assert subjects.count("Exoscale") == 1
    assert "graphics" not in subjects
    assert "metal" in subjects


def test_hostile_text_of_managed_pools_stays_text() -> None:
    for hostile in HOSTILE:
        pool = changed(
            name=hostile, provider=hostile, currency=hostile, next_machine=hostile, held=hostile
        )
        answer = get(store_with(pool), "/clusters/mine")
        assert (answer.status, CheckedPage(text(answer)).problems) == (200, []), hostile[:40]
        assert len(answer.body) < 200_000
        assert not any(mark in text(answer) for mark in ("\u202e", "\u0000", "\u2028"))
