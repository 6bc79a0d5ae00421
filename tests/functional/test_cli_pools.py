"""`outscaler pools` against a table (moto's DynamoDB in the same process)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cli.main import main
from chalicelib.model.memory import DRAIN_FOR, GroupMemory, Memory
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.store import Store
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.functional.conftest import ACCOUNT_TABLE

Said = pytest.CaptureFixture[str]
NAME = "prod-geneva"
POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod-geneva}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/prod-geneva/kubeconfig}
  providers:
    exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/prod-geneva/exoscale}
  options: {expander: least-cost}
  managedPools:
    - {name: general, provider: exoscale, copyFrom: workers}
    - {name: gpu, provider: exoscale, copyFrom: workers}
"""
GENERAL, GPU = "osc-c5f524-general-bc37acc1c6", "osc-c5f524-gpu-bc37acc1c7"
GONE, FULL = "osc-c5f524-old-bc37acc1c8", "osc-c5f524-general-bc37acc1c9"


@pytest.fixture
def store(account: Store) -> Store:
    account.policies.put(NAME, POLICY, "d", None)
    lease = account.leases.acquire(NAME, "pass", 60)
    before = account.memory.load(NAME)
    groups = {name: GroupMemory(empty_since=NOW - 60) for name in (GENERAL, GPU, GONE)}
    groups[FULL] = GroupMemory(target=3)
    account.memory.save(NAME, before, Memory(groups=groups), (), lease)
    account.leases.release(lease)
    return account


def answer(capsys: Said, *arguments: str, action: str = "prune") -> Any:
    """The JSON that the command prints."""
    capsys.readouterr()
    assert main(["pools", action, NAME, *arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_prune_asks_for_all_empty_groups_those_of_gone_pools_too(
    store: Store, capsys: Said
) -> None:
    assert answer(capsys)["groups"] == [GENERAL, GPU, GONE]
    prunes = store.memory.load(NAME).prunes
    assert sorted(prunes) == ["general", "gpu", "old"]
    assert min(prunes.values()) >= NOW


def test_prune_of_one_pool_asks_for_its_groups_only(store: Store, capsys: Said) -> None:
    assert answer(capsys, "--pool", "gpu")["groups"] == [GPU]
    assert list(store.memory.load(NAME).prunes) == ["gpu"]


@pytest.mark.usefixtures("store")
def test_prune_of_an_unknown_pool_names_the_nearest(capsys: Said) -> None:
    assert main(["pools", "prune", NAME, "--pool", "genral"]) == 2
    assert capsys.readouterr().err == (
        "--pool genral: is no managed pool of prod-geneva; did you mean general?\n"
    )


def test_prune_without_empty_groups_changes_nothing(store: Store, capsys: Said) -> None:
    lease = store.leases.acquire(NAME, "pass", 60)
    before = store.memory.load(NAME)
    store.memory.save(NAME, before, Memory(), (), lease)
    assert answer(capsys)["groups"] == []
    assert store.memory.load(NAME).prunes == {}


def test_request_to_prune_survives_the_next_pass(store: Store, capsys: Said) -> None:
    answer(capsys, "--pool", "gpu")
    lease = store.leases.acquire(NAME, "pass", 60)
    before = store.memory.load(NAME)
    store.memory.save(NAME, before, Memory(groups={GPU: GroupMemory(target=1)}), (), lease)
    assert list(store.memory.load(NAME).prunes) == ["gpu"]


SECOND = "6f1e51a2-0f0b-4b3f-9df5-5f1b8f2f7d11"


def see_retiring(store: Store, *groups: GroupOverview) -> None:
    """What the last pass saw of groups."""
    store.gauge_rings.add_overview(NAME, ClusterOverview(NOW, groups), NOW)


def test_pool_54_drain_asks_for_groups_of_deleted_declarations(store: Store, capsys: Said) -> None:
    said = answer(capsys, action="drain")
    assert (said["groups"], said["pools"]) == ([GONE], ["old"])
    memory = store.memory.load(NAME)
    assert list(memory.drains) == ["old"]
    assert memory.drains["old"] >= NOW
    assert memory.prunes == {}
    assert [entry.kind for entry in store.journal.recent(NAME, 1)] == ["drain"]


@pytest.mark.usefixtures("store")
def test_pool_54_drain_of_a_declared_pool_says_what_to_do_first(capsys: Said) -> None:
    assert main(["pools", "drain", NAME, "--pool", "gpu"]) == 2
    assert capsys.readouterr().err == (
        "--pool gpu: is declared, and none of its groups retires; take it out of spec.managedPools "
        "first\n"
    )


def test_pool_54_drain_of_a_declared_pool_is_of_its_retiring_groups(
    store: Store, capsys: Said
) -> None:
    see_retiring(
        store,
        GroupOverview(FULL, FULL, retiring="its declaration says something else"),
        GroupOverview(GENERAL, GENERAL),
        GroupOverview(SECOND, GENERAL, retiring="a second group"),
    )
    said = answer(capsys, "--pool", "general", action="drain")
    assert (said["groups"], said["pools"]) == ([SECOND, FULL], ["general"])
    assert list(store.memory.load(NAME).drains) == ["general"]


def test_pool_54_a_second_drain_keeps_the_first(store: Store, capsys: Said) -> None:
    answer(capsys, "--pool", "old", action="drain")
    first = store.memory.load(NAME).drains["old"]
    see_retiring(store, GroupOverview(FULL, FULL, retiring="its declaration is gone"))
    answer(capsys, "--pool", "general", action="drain")
    drains = store.memory.load(NAME).drains
    assert sorted(drains) == ["general", "old"]
    assert drains["old"] == first


def test_pool_54_drain_without_retiring_groups_changes_nothing(store: Store, capsys: Said) -> None:
    lease = store.leases.acquire(NAME, "pass", 60)
    groups = {GENERAL: GroupMemory(target=1), GONE: GroupMemory()}
    store.memory.save(NAME, store.memory.load(NAME), Memory(groups=groups), (), lease)
    assert answer(capsys, action="drain")["groups"] == []
    assert store.memory.load(NAME).drains == {}


def test_pool_54_the_row_of_a_drain_outlives_the_drain(store: Store, capsys: Said) -> None:
    answer(capsys, action="drain")
    rows = store.table.client.scan(TableName=ACCOUNT_TABLE)["Items"]
    (expires_at,) = (
        float(row["expires_at"]["N"]) for row in rows if row["item"]["S"] == "memory#drain"
    )
    assert expires_at >= NOW + DRAIN_FOR
