"""Which rows `outscaler get` prints, in which order, and that standard output has nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec
import pytest

from chalicelib.cli.main import main
from chalicelib.journal.journal import last_decision
from chalicelib.model.overview import NodeOverview
from chalicelib.store import JournalEntry, Store
from chalicelib.store.gauge_ring import GaugePoint
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.functional.test_cli_get import (
    BURST,
    LAB,
    OVERVIEW,
    SHOP,
    Said,
    answer,
    empty,
    lab,
    printed,
    refusal,
    screen,
    store,
)

__all__ = ["empty", "lab", "screen", "store"]  # fixtures


def streams(capsys: Said, *arguments: str) -> tuple[list[str], list[str]]:
    """The lines of both streams."""
    capsys.readouterr()
    assert main(arguments) == 0
    said = capsys.readouterr()
    return said.out.splitlines(), said.err.splitlines()


def first_words(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines]


@pytest.mark.parametrize("thing", ["nodes", "pods", "groups", "operations", "clusters", "claims"])
def test_standard_output_has_the_head_and_rows_only(thing: str, store: Store, capsys: Said) -> None:
    del store
    cluster = () if thing in ("clusters", "claims") else (SHOP,)
    whole, notes = streams(capsys, "get", thing, *cluster)
    bare, same_notes = streams(capsys, "get", thing, *cluster, "--no-headers")
    assert [row.split() for row in bare] == [row.split() for row in whole[1:]]
    assert notes == same_notes
    assert not any(line.startswith(("Decided", "no ", "(")) or not line for line in whole)
    data = json.loads("\n".join(printed(capsys, "get", thing, *cluster, "-o", "json")))
    rows = data if isinstance(data, list) else data[thing]
    assert len(rows) == len(bare)


def test_what_is_said_about_rows_is_on_standard_error(store: Store, capsys: Said) -> None:
    del store
    _, notes = streams(capsys, "get", "nodes", SHOP)
    assert len(notes) == 1
    assert notes[0].startswith("Decided at 2026-11-18T10:56:40Z, last confirmed at 2026-11-18T11:0")
    rows, notes = streams(capsys, "get", "groups", SHOP, "-l", "state=paused")
    assert (rows, notes) == ([], ["no group has state=paused"])


def test_nodes_that_are_gone_do_not_appear(store: Store, capsys: Said) -> None:
    nodes = (*OVERVIEW.nodes, NodeOverview("gone", 0))
    older = msgspec.structs.replace(OVERVIEW, at=NOW - 900, nodes=nodes)
    store.gauge_rings.add_overview(SHOP, older, NOW + 600)
    rows, notes = streams(capsys, "get", "nodes", SHOP, "--no-headers")
    assert first_words(rows) == ["busy", "idle"]
    assert notes[1:] == ["Cpu, memory and pods are of 2026-11-18T10:51:40Z."]
    assert answer(capsys, "get", "nodes", SHOP)["numbersAt"] == "2026-11-18T10:51:40Z"


def test_node_that_is_newer_than_the_numbers_is_counted(store: Store, capsys: Said) -> None:
    older = msgspec.structs.replace(OVERVIEW, at=NOW - 900, nodes=OVERVIEW.nodes[:1])
    store.gauge_rings.add_overview(SHOP, older, NOW + 600)
    rows, notes = streams(capsys, "get", "nodes", SHOP, "--no-headers")
    assert first_words(rows) == ["busy", "idle"]
    assert notes[1].endswith(" 1 newer node has none yet.")


def test_node_whose_removal_has_ended_does_not_appear(store: Store, capsys: Said) -> None:
    passed = store.scan_states.last(SHOP)
    assert passed is not None
    decision = last_decision(SHOP, passed, store.journal)
    assert decision is not None
    facts: dict[str, str | int | float | bool] = {
        "kind": "remove",
        "state": "succeeded",
        "targets": "idle",
    }
    store.journal.append(
        SHOP, JournalEntry(at=decision.at + 5, kind="operation", group="web", facts=facts)
    )
    assert first_words(printed(capsys, "get", "nodes", SHOP, "--no-headers")) == ["busy"]


@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        (("nodes", SHOP, "--sort-by", "cpu"), ["idle", "busy"]),
        (("nodes", SHOP, "--sort-by", "CPU"), ["idle", "busy"]),
        (("nodes", SHOP, "--sort-by", ".memory"), ["idle", "busy"]),
        (("nodes", SHOP, "--sort-by", "{.age}"), ["idle", "busy"]),
        (("nodes", SHOP, "--sort-by=node"), ["busy", "idle"]),
        (("groups", SHOP, "--sort-by", "price"), ["web", "burst"]),
        (("groups", SHOP, "--sort-by", "ready time"), ["burst", "web"]),
        (("groups", SHOP, "--sort-by", "cpu"), ["web", "burst"]),
        (("groups", SHOP, "--sort-by", "min..max"), ["burst", "web"]),
        (("clusters", "--sort-by", "last-pass"), [SHOP, LAB]),
    ],
)
@pytest.mark.usefixtures("lab")
def test_rows_are_sorted_by_a_column(
    arguments: tuple[str, ...], order: list[str], capsys: Said
) -> None:
    assert first_words(printed(capsys, "get", *arguments, "--no-headers")) == order
    names = printed(capsys, "get", *arguments, "-o", "name")
    assert [name.partition("/")[2] for name in names] == order
    data = answer(capsys, "get", *arguments)
    rows = data if isinstance(data, list) else data["nodes"]
    assert len(rows) == len(order)


def test_numbers_within_cells_are_sorted_as_numbers(store: Store, capsys: Said) -> None:
    nodes = tuple(NodeOverview(f"n-{at}", 0, cpu=at) for at in (9, 100, 30, 2))
    store.gauge_rings.add(
        LAB, GaugePoint(NOW, 2, 3), msgspec.structs.replace(OVERVIEW, nodes=nodes), seen=0.0
    )
    store.policies.put(LAB, "x", "d", None)
    # the overview alone has no decision: rows of the shop with it
    store.gauge_rings.add_overview(
        SHOP, msgspec.structs.replace(OVERVIEW, at=NOW + 1, nodes=nodes), NOW + 600
    )
    for word in ("cpu", "node"):
        rows = printed(capsys, "get", "nodes", SHOP, "--sort-by", word, "--no-headers")
        names = [name for name in first_words(rows) if name.startswith("n-")]
        assert names == ["n-2", "n-9", "n-30", "n-100"]


def test_unknown_column_is_refused_with_the_right_ones(store: Store, capsys: Said) -> None:
    del store
    line = refusal(capsys, "get", "nodes", SHOP, "--sort-by", "memry")
    assert line.startswith("--sort-by: 'memry' is not one of node, group, cpu, memory, pods, age")
    assert line.endswith("did you mean memory?")
    assert "belongs to tables" in refusal(capsys, "get", "policy", SHOP, "--sort-by", "name")


@pytest.mark.usefixtures("lab")
def test_all_clusters_have_a_column_for_the_cluster(store: Store, capsys: Said) -> None:
    rows, notes = streams(capsys, "get", "groups", "-A")
    assert [row.split()[:2] for row in rows] == [
        ["CLUSTER", "GROUP"],
        [SHOP, "burst"],
        [SHOP, "web"],
    ]
    assert answer(capsys, "get", "gr", "--all-clusters")[1]["cluster"] == SHOP
    rows, notes = streams(capsys, "get", "nodes", "-A", "--no-headers", "--sort-by", "cpu")
    assert [row.split()[:2] for row in rows] == [[SHOP, "idle"], [SHOP, "busy"]]
    assert any(line.startswith(f"{SHOP}: Decided at") for line in notes)
    assert any(line.startswith(f"warning: {LAB}: ") for line in notes), "it has no decision yet"
    documents = answer(capsys, "get", "nodes", "-A")
    assert [document["cluster"] for document in documents] == [SHOP]
    assert [row["node"] for row in documents[0]["nodes"]] == ["busy", "idle"]
    names = printed(capsys, "get", "groups", "-A", "-o", "name", "-l", "cluster=shop,name=web")
    assert names == [f"group/{SHOP}/web"]
    del store


@pytest.mark.usefixtures("lab")
def test_all_clusters_of_what_is_no_table(capsys: Said) -> None:
    assert [line.split(":")[0] for line in printed(capsys, "get", "breaker", "-A")] == [LAB, SHOP]
    assert [one["name"] for one in answer(capsys, "get", "breaker", "-A")] == [LAB, SHOP]
    assert printed(capsys, "get", "policy", "-A").count("---") == 1
    assert printed(capsys, "get", "clusters", "-A") == printed(capsys, "get", "clusters")


@pytest.mark.usefixtures("lab")
def test_all_clusters_and_one_contradict_each_other(capsys: Said) -> None:
    assert refusal(capsys, "get", "groups", SHOP, "-A").startswith("-A: is all clusters, and one")
    assert "or -A for all clusters" in refusal(capsys, "get", "groups")


def test_history_has_its_notes_on_standard_error(store: Store, capsys: Said) -> None:
    del store
    rows, _ = streams(capsys, "history", SHOP, "--no-headers")
    assert all(re.match(r"20\d\d-\d\d-\d\dT", row) for row in rows)
    rows, notes = streams(capsys, "history", SHOP, "--kind", "pause")
    assert (rows, notes) == ([], ["nothing of it has happened"])


def test_long_group_names_take_one_line_on_a_terminal(
    store: Store, screen: Callable[..., list[str]]
) -> None:
    long = f"MachineDeployment/default/{'very-long-name-of-a-group-' * 2}of-63-bytes"
    groups = tuple(
        msgspec.structs.replace(group, group=long if group.group == BURST else group.group, name="")
        for group in OVERVIEW.groups
    )
    store.gauge_rings.add_overview(
        SHOP, msgspec.structs.replace(OVERVIEW, at=NOW + 1, groups=groups), NOW + 600
    )
    for width in (80, 100, 120):
        lines = screen("get", "groups", SHOP, width=width)
        assert max(map(len, lines)) <= width
        assert len(lines) <= 8
        assert lines[0].startswith("GROUP")


def test_rows_are_named_in_any_case_and_as_a_table_shows_them(store: Store, capsys: Said) -> None:
    del store
    for name in ("burst", "BURST", BURST, "MachineD…ult/burst"):
        assert printed(capsys, "get", "groups", SHOP, name, "-o", "name") == ["group/burst"]
    assert "did you mean burst?" in refusal(capsys, "get", "groups", SHOP, "brust")
