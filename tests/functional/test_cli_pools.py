"""`outscaler pools prune` against a table (moto's DynamoDB in the same process)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cli.main import main
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.store import Store
from tests.functional.conftest import ACCOUNT_NOW as NOW

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


def answer(capsys: Said, *arguments: str) -> Any:
    """The JSON that the command prints."""
    capsys.readouterr()
    assert main(["pools", "prune", NAME, *arguments, "-o", "json"]) == 0
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
