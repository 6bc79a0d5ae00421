"""The page shows replacements under way, and why nodes are not consolidated."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.memory import PurchasedNodes, Replacement, ReplacementState
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.policy_permissions import STRICT
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.page.attention import OperationProgress, under_way
from chalicelib.page.cluster_data import details
from chalicelib.page.views import unconsolidated
from chalicelib.store import Store
from infra.emulators.example_clusters import ARM, NOW, busy_plan, decided, example
from tests.unit.page.test_pages import get, with_policy, words

ROW = Replacement(
    "r1",
    ReplacementState.WAITING,
    ("batch-2",),
    (PurchasedNodes(ARM, 1, 190_000, "grow-1"),),
    410_000,
    7.0,
    1.6,
    NOW - 200,
    NOW - 90,
    bought_at=NOW - 120,
)
NOT_WORTH = Reason.of(
    ReasonCode.NOT_WORTH_DISRUPTION, saves=0.1, disruption=9.0, score=0.3333, needs=0.5
)


def with_rows(*rows: Replacement) -> Store:
    store = example()
    before = store.memory.load("prod")
    lease = store.leases.acquire("prod", "test", 60.0)
    after = msgspec.structs.replace(before, replacements={row.id: row for row in rows})
    store.memory.save("prod", before, after, (), lease)
    store.leases.release(lease, passed_at=NOW - 22)
    return store


def progress(*rows: Replacement) -> list[OperationProgress]:
    cluster = details(with_rows(*rows), "prod", NOW, STRICT)
    assert cluster is not None
    return under_way(cluster)


def test_replacement_is_under_way_with_what_it_saves_and_how_far_it_is() -> None:
    page = words(get(with_rows(ROW), "/clusters/prod"))
    assert "batch-2 is replaced by 1 of arm, saves 0.22 USD an hour" in page
    assert "waiting until the new nodes are ready since 1 min 30 s" in page
    assert "step 2 of 3" in page


@pytest.mark.parametrize(
    ("state", "gone", "step"),
    [
        (ReplacementState.BUYING, (), (0, 2)),
        (ReplacementState.WAITING, (), (1, 2)),
        (ReplacementState.DRAINING, (), (2, 2)),
        (ReplacementState.DRAINING, ("batch-3",), (3, 3)),
        (ReplacementState.PROPOSED, (), (0, 0)),
    ],
)
def test_progress_of_a_replacement_follows_its_state(
    state: ReplacementState, gone: tuple[str, ...], step: tuple[int, int]
) -> None:
    row = msgspec.structs.replace(ROW, state=state, gone=gone)
    [first, *_] = progress(row)
    assert (first.id, (first.done, first.of)) == ("r1", step)


def test_failed_replacement_is_not_under_way() -> None:
    failed = msgspec.structs.replace(ROW, state=ReplacementState.FAILED, until=NOW + 3600)
    rows = progress(failed)
    assert len(rows) > 0
    assert "r1" not in {row.id for row in rows}


def test_node_list_says_why_a_node_is_not_consolidated_beside_why_it_stays() -> None:
    plan = busy_plan()
    assert plan.consolidation is not None
    report = msgspec.structs.replace(
        plan.consolidation, verdicts=(NodeVerdict("web-3", NOT_WORTH),)
    )
    changed = msgspec.structs.replace(plan, cluster="mine", consolidation=report)
    store = with_policy("clusterapi: {}")
    decided(store, "mine", changed, NOW - 22)
    nodes = words(get(store, "/clusters/mine/nodes", reason="NotWorthDisruption"))
    assert "1 node" in nodes
    assert "not underutilized (cpu 82%, threshold 50%)" in nodes
    assert "not consolidated: the saving is not worth the disruption" in nodes
    assert "Not consolidated 1 not worth the disruption" in words(get(store, "/clusters/mine"))
    assert unconsolidated(changed) == [("NotWorthDisruption", 1, "not worth the disruption")]
