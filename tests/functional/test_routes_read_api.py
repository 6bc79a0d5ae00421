"""The GET routes for users and scripts."""

from __future__ import annotations

import dataclasses
import io
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from chalicelib.model.cluster_bill import Bill, ClusterBill, CostParts, MachineCost, WorkloadCost
from chalicelib.model.memory import (
    Backoff,
    GroupMemory,
    Memory,
    NodeMemory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
    ScaleUpRequest,
)
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.overview import ClusterOverview, GroupOverview, NodeOverview
from chalicelib.model.timestamps import format_time
from chalicelib.runtime.runtime import install
from chalicelib.store import JournalEntry, Store
from chalicelib.store.gauge_ring import GaugePoint
from infra.emulators.aws_faults import AwsFaults, busy
from tests.functional.app_client import AppClient, line
from tests.operations import new_operation

pytestmark = pytest.mark.filterwarnings("ignore:IAMAuthorizer is not a supported in local mode")


def _remember(desk: AppClient, name: str) -> None:
    now = desk.clock()
    after = Memory(
        groups={
            "workers": GroupMemory(
                target=3,
                request=ScaleUpRequest(1, now - 60, now + 840),
                last_add=now - 60,
                backoff=Backoff(300.0, now + 240, now - 60, "OutOfStock", "NoStock", "none left"),
            )
        },
        nodes={"n1": NodeMemory(unneeded_since=now - 120), "n2": NodeMemory(confirmed_at=now)},
        last_scale_up=now - 60,
    )
    operation = new_operation(
        id="remove-1",
        cluster=name,
        provider="clusterapi",
        group="workers",
        kind=OperationKind.DELETE_NODES,
        plan="p1",
        created_at=now,
        from_size=3,
        to_size=2,
        targets=(RemovalTarget("n9", "i9"),),
    )
    lease = desk.store.leases.acquire(name, f"pass-{now}", 60)
    desk.store.memory.save(name, Memory(), after, (operation,), lease)
    desk.store.leases.release(lease, passed_at=now)


def test_healthz_reports_only_that_the_function_runs(desk: AppClient) -> None:
    answer = desk.get("/healthz")
    assert (answer.status_code, answer.json_body) == (200, {"status": "ok"})


def test_clusters_route_lists_clusters_with_their_state(desk: AppClient) -> None:
    seen, fresh, off = desk.cluster(), desk.cluster(mode="shadow"), desk.cluster(mode="off")
    _remember(desk, seen)
    rows = {row["name"]: row for row in desk.get("/clusters").json_body["clusters"]}
    assert rows[seen] == {
        "name": seen,
        "mode": "active",
        "version": 1,
        "lastPass": format_time(desk.clock()),
        "health": "ok",
        "status": {"word": "ok", "tone": "ok", "person": False, "detail": "", "since": None},
        "counts": {"nodes": None, "coming": None, "waiting": None, "withoutNode": None},
        "appliedAt": format_time(desk.clock()),
        "openOperations": 1,
        "lastSuccess": None,
        "lastError": None,
        "problem": None,
    }
    assert (rows[fresh]["mode"], rows[fresh]["lastPass"], rows[fresh]["health"]) == (
        "shadow",
        None,
        "waiting",
    )
    assert rows[off]["health"] == "off"


def test_cluster_route_shows_the_configuration_in_force(desk: AppClient) -> None:
    name = desk.cluster()
    _remember(desk, name)
    shown = desk.get(f"/clusters/{name}").json_body
    [group], [operation], [timer] = shown["groups"], shown["operations"], shown["timers"]
    assert (group["group"], group["target"], group["expected"]["nodes"]) == ("workers", 3, 1)
    assert (group["backOff"]["class"], group["backOff"]["until"][:4]) == ("OutOfStock", "2026")
    assert (operation["id"], operation["state"], operation["nodes"]) == (
        "remove-1",
        "planned",
        ["n9"],
    )
    assert (timer["node"], timer["unremovableUntil"]) == ("n1", None)
    assert shown["cooldowns"]["afterAdd"] is not None
    assert shown["cooldowns"]["afterFailure"] is None
    assert shown["policy"]["nodeGroups"][0]["id"] == "workers"
    assert "kubeconfig" not in json.dumps(shown)


def test_cluster_route_shows_replacements_with_their_progress(desk: AppClient) -> None:
    name, now = desk.cluster(), desk.clock()
    bought = (PurchasedNodes("workers", 1, 100_000, "grow-1", ("s-1",)),)
    row = Replacement(
        "r1", ReplacementState.WAITING, ("a",), bought, 200_000, 3.0, 1.0, now - 90, now - 30
    )
    lease = desk.store.leases.acquire(name, f"pass-{now}", 60)
    desk.store.memory.save(name, Memory(), Memory(replacements={"r1": row}), (), lease)
    [shown] = desk.get(f"/clusters/{name}").json_body["replacements"]
    assert (shown["id"], shown["state"], shown["nodes"], shown["buys"]) == (
        "r1",
        "waiting",
        ["a"],
        {"workers": 1},
    )
    assert (shown["newNodes"], shown["operations"], shown["saves"]) == (["s-1"], ["grow-1"], 0.1)
    assert (shown["done"], shown["of"], shown["since"], shown["until"]) == (
        1,
        3,
        format_time(now - 30),
        None,
    )


def test_cluster_route_shows_the_rows_that_page_and_command_show(desk: AppClient) -> None:
    name, now = desk.cluster(), desk.clock()
    _remember(desk, name)
    groups = (
        GroupOverview("workers", "Workers", "exoscale", "ch-gva-2", "large", 0.5, 10.0, 5.0),
        GroupOverview("b"),
    )
    seen = ClusterOverview(
        now, groups, (NodeOverview("n1", 0, "ch-gva-2", "large", now - 60, 50, -1, 4),)
    )
    desk.store.gauge_rings.add(name, GaugePoint(now, 1, 0), seen, seen=0.0)
    shown = desk.get(f"/clusters/{name}").json_body
    other, group = shown["groups"]
    assert (other["group"], other["name"], other["lastAdd"]) == ("b", "b", None)
    assert (group["group"], group["name"], group["providerTitle"], group["target"]) == (
        "workers",
        "Workers",
        "Exoscale",
        3,
    )
    assert (group["price"], group["cpu"], group["memory"], group["ready"]) == (0.5, 50, None, 0)
    assert (group["status"]["word"], group["status"]["detail"]) == (
        "backing off",
        "sold out in ch-gva-2",
    )
    assert group["status"]["until"] == format_time(now + 240)
    [node] = shown["nodes"]
    assert (node["node"], node["groupName"], node["cpu"], node["memory"], node["pods"]) == (
        "n1",
        "Workers",
        50,
        None,
        4,
    )
    assert (node["created"], node["decision"], node["reason"]) == (format_time(now - 60), "", None)


def test_cluster_route_shows_what_the_cluster_costs(desk: AppClient) -> None:
    name, now = desk.cluster(), desk.clock()
    _remember(desk, name)
    assert desk.get(f"/clusters/{name}").json_body["cost"] is None
    parts = CostParts(400_000, 300_000, avoidable=100_000)
    costs = (MachineCost("workers", 2, parts),)
    bill = ClusterBill(
        now, (Bill("EUR", parts, costs, costs, (WorkloadCost("shop", 300_000, 100_000),)),), 1
    )
    desk.store.gauge_rings.add(
        name, GaugePoint(now, 1, 0), ClusterOverview(now, bill=bill), seen=0.0
    )
    cost = desk.get(f"/clusters/{name}").json_body["cost"]
    [shown] = cost["bills"]
    assert (cost["at"], cost["unpriced"], cost["moves"]) == (format_time(now), 1, [])
    assert (shown["currency"], shown["lowerBound"], shown["perHour"]["avoidable"]) == (
        "EUR",
        None,
        0.1,
    )
    assert shown["groups"][0] == {"name": "workers", "machines": 2, "perHour": shown["perHour"]}
    assert shown["namespaces"] == [{"name": "shop", "names": 1, "workload": 0.3, "idle": 0.1}]


def test_cluster_route_shows_what_can_be_read(desk: AppClient) -> None:
    """A decision of another release costs its own fields, and no other."""
    name = desk.cluster()
    _remember(desk, name)
    desk.store.journal.append(
        name, JournalEntry(desk.clock(), "plan", plan="p1", body='{"no": "plan"}')
    )
    shown = desk.get(f"/clusters/{name}").json_body
    assert ([group["group"] for group in shown["groups"]], shown["nodes"]) == (["workers"], [])


@pytest.mark.parametrize(("local", "lasts"), [(False, (10, 40, None)), (True, (None, None, None))])
def test_cluster_route_shows_until_when_each_cooldown_lasts(
    desk: AppClient, local: bool, lasts: tuple[int | None, ...]
) -> None:
    delays = {
        "scaleDownDelayAfterAdd": "1m",
        "scaleDownDelayAfterDelete": "1m",
        "scaleDownDelayAfterFailure": "10s",
    }
    name, now = (
        desk.cluster(spec={"options": {**delays, "scaleDownDelayTypeLocal": local}}),
        desk.clock(),
    )
    lease = desk.store.leases.acquire(name, f"pass-{now}", 60)
    after = Memory(
        last_scale_up=now - 50, last_scale_down=now - 20, last_scale_down_failure=now - 10
    )
    desk.store.memory.save(name, Memory(), after, (), lease)
    names = ("afterAdd", "afterDelete", "afterFailure")
    ends = [None if seconds is None else format_time(now + seconds) for seconds in lasts]
    assert desk.get(f"/clusters/{name}").json_body["cooldowns"] == dict(
        zip(names, ends, strict=True)
    )


def test_cluster_route_reports_a_late_cluster(desk: AppClient) -> None:
    name = desk.cluster()
    _remember(desk, name)
    desk.clock.advance(241)
    assert desk.get(f"/clusters/{name}").json_body["health"] == "late"


def test_unreadable_policy_hides_no_other_field(desk: AppClient) -> None:
    name = desk.cluster()
    _remember(desk, name)
    desk.store_text(name, "kind: Cluster")
    shown = desk.get(f"/clusters/{name}").json_body
    assert (shown["health"], shown["mode"], len(shown["groups"])) == ("unreadable", "unreadable", 1)
    assert "\n" not in shown["policy"]["error"]
    assert shown["problem"] == shown["policy"]["error"]
    assert {row["name"]: row["problem"] for row in desk.get("/clusters").json_body["clusters"]}[
        name
    ] == shown["problem"]


def test_decisions_are_listed_newest_first_in_pages(desk: AppClient) -> None:
    name, start = desk.cluster(), desk.clock()
    for number in range(5):
        entry = JournalEntry(
            start + number / 8, "plan", plan=f"p{number}", facts={"number": number}, body='{"a": 1}'
        )
        desk.store.journal.append(name, entry)
    desk.clock.advance(10)
    newest = desk.get(f"/clusters/{name}/decisions?limit=2").json_body["decisions"]
    assert [one["plan"] for one in newest] == ["p4", "p3"]
    assert "body" not in newest[0]
    older = desk.get(f"/clusters/{name}/decisions?limit=2&before={newest[-1]['at']}").json_body[
        "decisions"
    ]
    assert [one["plan"] for one in older] == ["p2", "p1"]
    [whole] = desk.get(f"/clusters/{name}/decisions?limit=1&full=true").json_body["decisions"]
    assert whole["body"] == {"a": 1}


def test_every_journal_page_can_be_reached(desk: AppClient) -> None:
    name, start, count = desk.cluster(), desk.clock(), 1050
    with ThreadPoolExecutor(4) as writers:
        list(
            writers.map(
                lambda number: desk.store.journal.append(
                    name, JournalEntry(start - number, "plan", plan=f"p{number}")
                ),
                range(count),
            )
        )
    seen: list[str] = []
    page = desk.get(f"/clusters/{name}/decisions?limit=100").json_body["decisions"]
    while page:
        seen += [one["plan"] for one in page]
        page = desk.get(f"/clusters/{name}/decisions?limit=100&before={page[-1]['at']}").json_body[
            "decisions"
        ]
    assert seen == [f"p{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("limit=0", "query: limit: '0'; use a whole number from 1 to 100"),
        ("limit=101", "query: limit: '101'; use a whole number from 1 to 100"),
        ("limit=6&full=true", "query: limit: '6'; use a whole number from 1 to 5"),
        ("limit=ten", "query: limit: 'ten'"),
        ("before=yesterday", "query: before: 'yesterday' is not a time; write RFC 3339"),
        ("full=yes", "query: full: 'yes'; use true or false"),
        ("page=2", "query: page: is not a parameter; use limit, before or full"),
    ],
)
def test_status_400_names_the_parameter(desk: AppClient, query: str, place: str) -> None:
    answer = desk.get(f"/clusters/{desk.cluster()}/decisions?{query}")
    assert answer.status_code == 400
    assert line(answer).startswith(place)


@pytest.mark.parametrize(
    "path", ["/clusters/no-such-one", "/clusters/no-such-one/decisions", "/clusters/NOT-A-NAME"]
)
def test_status_404_for_a_cluster_without_a_stored_policy(desk: AppClient, path: str) -> None:
    answer = desk.get(path)
    assert answer.status_code == 404
    assert "not known" in line(answer)


def test_failed_request_logs_route_and_cluster(desk: AppClient, log: io.StringIO) -> None:
    name = desk.cluster()
    faults = AwsFaults()
    broken = Store(
        desk.store.table.name,
        clock=desk.clock,
        sleep=lambda seconds: None,
        client=desk.store.table.client,
        wrap=faults.wrap,
    )
    install(dataclasses.replace(desk.runtime, store=broken))
    faults.instead("query", busy("ValidationException"))
    assert desk.get(f"/clusters/{name}").status_code == 503
    [reported] = [
        json.loads(text) for text in log.getvalue().splitlines() if "request failed" in text
    ]
    assert reported["route"] == f"GET /clusters/{name}"
