"""POOL_55: `outscaler uninstall --managed hand-over` leaves groups without Outscaler's marks at the
vendors, and entries of nodeGroups that manage them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.commands.uninstall import UninstallClock, add_arguments, uninstall
from chalicelib.cli.deployment_settings import on_this_machine
from chalicelib.cli.live_cluster import connected_by_file
from chalicelib.cli.main import main
from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import MachineChoice, ManagedGroup
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.model.policy_permissions import STRICT
from chalicelib.policy.load import load
from chalicelib.providers.kit.services import ProviderServices
from chalicelib.providers.registry import providers
from chalicelib.store import Store
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.functional.captured_clusters import served
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.scenario.policies import document

Said = pytest.CaptureFixture[str]
NAME, OTHER_CLUSTER = "prod-geneva", "0d1b7d7e-54a5-4b6e-8a70-3a1f1f6e0c55"
MARK, TAG = "outscaler.dev/managed", "outscaler-managed"
UPDATE_NODEPOOL, UPDATE_SERVER = "update-sks-nodepool", "update_server"
EXOSCALE_KEY, CHERRY_KEY = "outscaler/shared/exoscale", "outscaler/shared/cherryservers"
LABELS = {"team": "shop", "outscaler.dev/pool": "general"}


class HandedOver:
    """A cluster with groups at both vendors, two of each, and one of another cluster."""

    def __init__(self, store: Store, server: ApiServer, kubeconfig: Path, folder: Path) -> None:
        self.store, self.kubeconfig = store, kubeconfig
        self.exoscale, self.cherry = ExoscaleAccount(), CherryAccount()
        self.slept: list[float] = []
        self.secrets: dict[str, Path] = {}
        for account in (self.exoscale, self.cherry):
            account.attach(time.time, ObjectStore(time.time))
            account.start()
            for name, text in account.secrets().items():
                self.secrets[name] = folder / name.replace("/", "-")
                self.secrets[name].write_text(text, "utf-8")
        namespaces = server.store.list("namespaces")
        (self.uid,) = (
            namespace["metadata"]["uid"]
            for namespace in namespaces
            if namespace["metadata"]["name"] == "kube-system"
        )
        self.nodepools = [self._nodepool(self.uid, size) for size in (2, 3)]
        self.foreign_nodepool = self._nodepool(OTHER_CLUSTER, 1)
        self.servers = [self._server(self.uid, plan) for plan in ("cloud_vps_4", "e5_1620v4")]
        self.foreign_server = self._server(OTHER_CLUSTER, "cloud_vps_4")
        self.groups = {
            nodepool.name: nodepool.pool.size for nodepool in self.nodepools
        } | dict.fromkeys((server.tags["k8s-nodepool"] for server in self.servers), 1)
        store.policies.put(NAME, self.policy(), "d", None)
        lease = store.leases.acquire(NAME, "pass", 60)
        memory = Memory(
            groups={
                name: GroupMemory(target=nodes, first_seen=NOW)
                for name, nodes in self.groups.items()
            }
        )
        store.memory.save(NAME, store.memory.load(NAME), memory, (), lease)
        store.leases.release(lease)

    def _nodepool(self, cluster: str, size: int) -> Any:
        zone = self.exoscale.zone
        sks = next(iter(zone.clusters), None) or zone.add_cluster("prod").id
        choice = MachineChoice("general", f"type-{size}", "ch-gva-2")
        own = ManagedGroup(cluster, choice)
        return zone.add_nodepool(sks, own.name, size=size, labels={**LABELS, MARK: own.mark})

    def _server(self, cluster: str, plan: str) -> Any:
        own = ManagedGroup(cluster, MachineChoice("metal", plan, "eu_nord_1"))
        tags = {"k8s-cluster": "ours", "k8s-nodepool": own.name, TAG: own.mark, "owner": "shop"}
        return self.cherry.cloud.add_server(plan=plan, tags=tags)

    def policy(self, **spec: Any) -> str:
        """A policy of both vendors with a declaration of each."""
        pools = [
            {"name": "general", "provider": "exoscale", "copyFrom": "workers"},
            {"name": "metal", "provider": "cherryservers"},
        ]
        cherry = self.cherry.settings() | {"nodes": "0:3:pool1"}
        return document(
            NAME,
            providers={"exoscale": self.exoscale.settings(), "cherryservers": cherry},
            **({"options": {"expander": "least-cost"}, "managedPools": pools} | spec),
        )

    def run(self, *words: str, managed: str = "hand-over", without: str = "") -> int:
        """Run the command. without: the secret that is not given."""
        assert not without or without in self.secrets
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        line = [NAME, "--kubeconfig", str(self.kubeconfig), *words]
        line += ["--managed", managed] if managed else []
        for name, file in self.secrets.items():
            line += ["--secret", f"{name}={file}"] if name != without else []
        args = parser.parse_args(line)
        args.output = "text"
        return uninstall(args, UninstallClock(time.time, self.slept.append))

    def marks(self) -> int:
        """How many of the cluster's own Nodepools and servers bear marks."""
        nodepools = sum(MARK in nodepool.labels for nodepool in self.nodepools)
        return nodepools + sum(TAG in server.tags for server in self.servers)

    def writes(self) -> int:
        """Changes that reached a vendor."""
        exoscale = sum(call.writes for call in self.exoscale.server.log)
        methods = [call.method for call in self.cherry.server.log]
        return exoscale + sum(method != "GET" for method in methods)

    def stop(self) -> None:
        """Stop both accounts."""
        self.exoscale.stop()
        self.cherry.stop()


@pytest.fixture
def handed(account: Store, tmp_path: Path) -> Iterator[HandedOver]:
    with served(tmp_path, ()) as (server, kubeconfig):
        world = HandedOver(account, server, kubeconfig, tmp_path)
        yield world
        world.stop()


def is_archived(store: Store) -> bool:
    return store.policies.current(NAME) is None


def test_pool_55_hand_over_takes_marks_off_and_keeps_the_other_labels(
    handed: HandedOver, capsys: Said
) -> None:
    assert handed.run("--yes") == 0
    assert handed.marks() == 0
    assert [nodepool.labels for nodepool in handed.nodepools] == [LABELS] * 2
    for server in handed.servers:
        assert server.tags.keys() == {"k8s-cluster", "k8s-nodepool", "owner"}
    assert handed.writes() == 4
    assert MARK in handed.foreign_nodepool.labels, "another cluster's is never written"
    assert TAG in handed.foreign_server.tags
    assert is_archived(handed.store)
    said = capsys.readouterr().out
    assert all(name in said for name in handed.groups)


def test_pool_55_printed_node_groups_are_those_of_a_policy(
    handed: HandedOver, capsys: Said
) -> None:
    assert handed.run("--yes") == 0
    lines = capsys.readouterr().out.splitlines()
    entries = [line for line in lines if line.startswith("  - {id: osc-")]
    node_groups = yaml.safe_load("\n".join(entries))
    assert len(node_groups) == len(handed.groups) == 4
    text = handed.policy(managedPools=[], nodeGroups=node_groups)
    policy, warnings = load(text, place="pasted")
    assert {group.id: group.max for group in policy.node_groups} == handed.groups
    assert {group.min for group in policy.node_groups} == {0}
    assert not [warning for warning in warnings if "osc-" in str(warning)]


def test_pool_55_a_group_that_was_handed_over_is_one_made_by_hand(handed: HandedOver) -> None:
    assert handed.run("--yes") == 0
    names = [nodepool.name for nodepool in handed.nodepools]
    settings = handed.exoscale.settings() | {"sksCluster": "prod"}
    entries = [{"id": name, "provider": "exoscale", "min": 0, "max": 5} for name in names]
    text = document(NAME, providers={"exoscale": settings}, nodeGroups=entries)
    policy, _ = load(text, place="pasted")
    (provider,) = providers(
        policy,
        connected_by_file(handed.kubeconfig, ""),
        lambda name: handed.secrets[name].read_text("utf-8"),
        time.time,
        ProviderServices(deployment=on_this_machine(STRICT)),
    )
    groups = provider.observe(()).groups
    seen = {group.name: (group.managed, group.min, group.max, group.error) for group in groups}
    assert seen == dict.fromkeys(names, (None, 0, 5, ""))


def test_pool_55_without_yes_hand_over_only_shows(handed: HandedOver, capsys: Said) -> None:
    assert handed.run() == 0
    said = capsys.readouterr().out
    assert "Marks that would be taken off" in said
    assert all(f"Nodepool {nodepool.name}" in said for nodepool in handed.nodepools)
    assert f"--secret {EXOSCALE_KEY}={handed.secrets[EXOSCALE_KEY]}" in said
    assert (handed.marks(), handed.writes(), is_archived(handed.store)) == (4, 0, False)


def test_pool_55_keep_writes_nothing_at_the_vendor(handed: HandedOver) -> None:
    assert handed.run("--yes", managed="keep") == 0
    assert (handed.marks(), handed.writes(), is_archived(handed.store)) == (4, 0, True)
    assert not handed.exoscale.server.log


def test_pool_55_a_missing_key_is_named_before_anything_changes(
    handed: HandedOver, capsys: Said
) -> None:
    with pytest.raises(BadInput) as refused:
        handed.run("--yes", without=EXOSCALE_KEY)
    said = str(refused.value)
    assert f"secret {EXOSCALE_KEY} of exoscale: is not given" in said
    assert f"add --secret {EXOSCALE_KEY}=FILE" in said
    stored = handed.store.policies.current(NAME)
    assert stored is not None
    assert (stored.version, handed.marks(), handed.writes()) == (1, 4, 0)
    assert handed.run(without=EXOSCALE_KEY) == 0
    assert f"{EXOSCALE_KEY}=FILE" in capsys.readouterr().err


def test_pool_55_the_refusal_without_flag_names_three_ways(handed: HandedOver) -> None:
    with pytest.raises(BadInput) as refused:
        handed.run("--yes", managed="")
    said = str(refused.value)
    assert "4 node groups that Outscaler has made have 7 nodes" in said
    for way in ("--managed keep", "--managed hand-over", f"outscaler pools drain {NAME}"):
        assert way in said
    assert not is_archived(handed.store)


@pytest.mark.parametrize("fault", [VendorFault.SERVER_ERROR, VendorFault.FORBIDDEN])
def test_pool_55_a_failing_vendor_is_reported_and_a_repetition_finishes(
    handed: HandedOver, fault: VendorFault, capsys: Said
) -> None:
    handed.exoscale.server.faults.next(fault, on=UPDATE_NODEPOOL, times=-1)
    assert handed.run("--yes") == 1
    assert handed.marks() == 2, "the other vendor's are off"
    assert not is_archived(handed.store), "the policy stays, with mode off"
    said = capsys.readouterr().out
    assert "Not removed" in said
    assert said.count("exoscale") >= 2
    handed.exoscale.server.faults.clear()
    assert handed.run("--yes") == 0
    assert (handed.marks(), is_archived(handed.store)) == (0, True)


def test_pool_55_a_vendor_that_cannot_be_read_is_reported(handed: HandedOver, capsys: Said) -> None:
    handed.cherry.server.faults.next(VendorFault.UNAUTHORIZED, times=-1)
    assert handed.run("--yes") == 1
    assert "cherryservers" in capsys.readouterr().out
    assert (handed.marks(), is_archived(handed.store)) == (2, False)


def test_pool_55_lost_answers_are_no_failure(handed: HandedOver) -> None:
    handed.exoscale.server.faults.next(VendorFault.LOST_ANSWER, on=UPDATE_NODEPOOL)
    handed.cherry.server.faults.next(VendorFault.LOST_ANSWER, on=UPDATE_SERVER)
    assert handed.run("--yes") == 0
    assert len(handed.slept) == 1, "before the repetition for the server"
    assert (handed.marks(), is_archived(handed.store)) == (0, True)


def test_pool_55_hand_over_is_repeated_without_harm(handed: HandedOver) -> None:
    assert handed.run("--yes") == 0
    writes = handed.writes()
    assert handed.run("--yes") == 0
    assert (handed.marks(), handed.writes()) == (0, writes)


def test_pool_55_hand_over_needs_the_cluster_whose_marks_they_are(
    handed: HandedOver, capsys: Said
) -> None:
    words = ["uninstall", NAME, "--managed", "hand-over", "--without-cluster", "--yes"]
    assert main(words) == 2
    assert "needs the cluster" in capsys.readouterr().err
    assert (handed.writes(), is_archived(handed.store)) == (0, False)


def test_pool_55_groups_of_a_deleted_declaration_are_handed_over_too(
    handed: HandedOver, capsys: Said
) -> None:
    handed.store.policies.put(NAME, handed.policy(managedPools=[]), "d2", 1)
    servers = {server.tags["k8s-nodepool"] for server in handed.servers}
    providers = {name: "cherryservers" if name in servers else "exoscale" for name in handed.groups}
    seen = tuple(GroupOverview(name, provider=providers[name]) for name in sorted(providers))
    handed.store.gauge_rings.add_overview(NAME, ClusterOverview(NOW, seen), NOW)
    assert handed.run("--yes") == 0
    assert handed.marks() == 0
    lines = capsys.readouterr().out.splitlines()
    entries = yaml.safe_load("\n".join(line for line in lines if line.startswith("  - {id: osc-")))
    assert {entry["id"]: entry["provider"] for entry in entries} == providers


def test_pool_55_only_keys_of_vendors_with_own_groups_are_asked_for(handed: HandedOver) -> None:
    pools = [{"name": "general", "provider": "exoscale", "copyFrom": "workers"}]
    handed.store.policies.put(NAME, handed.policy(managedPools=pools), "d2", 1)
    names = {nodepool.name for nodepool in handed.nodepools}
    lease = handed.store.leases.acquire(NAME, "pass", 60)
    before = handed.store.memory.load(NAME)
    left = {name: group for name, group in before.groups.items() if name in names}
    handed.store.memory.save(NAME, before, Memory(groups=left), (), lease)
    handed.store.leases.release(lease)
    assert handed.run("--yes", without=CHERRY_KEY) == 0
    assert handed.marks() == 2, "only those that no pass has seen stay"
