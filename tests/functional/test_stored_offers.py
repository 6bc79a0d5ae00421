"""A decision has the machines of managed pools from which it was chosen: `replay` makes the same
plan of a recorded one, and `explain --cluster` says of the last one what `explain` says live.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from chalicelib.cli import explain_group, explain_pod
from chalicelib.cli.main import main
from chalicelib.cli.replayed_plan import replay
from chalicelib.journal import carry_over
from chalicelib.journal.recorder import Recorder, record_plan
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state import managed_groups
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.load import digest
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.managed_pools import ManagedPool, PoolLimits
from chalicelib.policy.settings.mode import Mode
from chalicelib.replay import decision_place, recorded_decision
from chalicelib.replay.recorded_decision import RecordedDecision, decode, encode, reduced
from chalicelib.store import Store
from chalicelib.store import codec as store_codec
from chalicelib.store import journal as store_journal
from chalicelib.store.tables import OFFERS
from infra.emulators.cherryservers.models import PLANS, STOCK
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.exoscale.account import KINDS, example_id
from infra.emulators.memory_table import MemoryAccount
from tests.builders import NOW, ClusterBuilder, cluster
from tests.providers.cherryservers.emulated import EmulatedCloud
from tests.providers.exoscale.fixture import opened
from tests.providers.managed import ManagedBench, observed, refreshed
from tests.unit.cli.test_managed_machines import context_of, name_of
from tests.unit.plan.managed_offers import GENERAL, GIB, OfferedCluster, entry

NAME, TABLE = "test", "offers"
TYPES = 300
POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: test}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/test/kubeconfig}
  providers:
    exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/test/exoscale}
  options: {expander: least-cost}
  managedPools: [{name: general, provider: exoscale, copyFrom: workers}]
"""

# -- recorded decisions


def sizes() -> list[tuple[int, int, float]]:
    """Cores, GiB and prices of TYPES different machines."""
    shapes = [(2 + number % 15, 4 + number // 15) for number in range(TYPES)]
    return [(cores, gib, round(0.02 * cores + 0.003 * gib, 4)) for cores, gib in shapes]


def exoscale() -> ManagedBench:
    pools = ManagedPool("general", "exoscale", "web"), ManagedPool("batch", "exoscale", "web")
    bench = opened(("web", "prod", 1), pools=pools)
    kinds = {kind.id: kind for kind in KINDS if kind.name == "standard.medium"}
    for number, (cores, gib, price) in enumerate(sizes(), start=100):
        fields = {"family": f"f{number}", "cpus": cores, "memory": gib * GIB, "price": price}
        made = msgspec.structs.replace(KINDS[0], id=example_id("kind", number), **fields)
        kinds[made.id] = made
    bench.zone.kinds = kinds
    return bench


def cherry() -> ManagedBench:
    pools = ManagedPool("general", "cherryservers"), ManagedPool("batch", "cherryservers")
    bench = EmulatedCloud(pools=pools)
    for number, (cores, gib, price) in enumerate(sizes(), start=50_000):
        fields = {"slug": f"plan_{number}", "cores": cores, "memory": gib, "hourly": price}
        plan = msgspec.structs.replace(PLANS[0], id=number, **fields)
        bench.cloud.plans[plan.slug] = plan
        bench.cloud.stock[plan.slug, plan.regions[0]] = STOCK
        bench.cloud.spot_stock[plan.slug, plan.regions[0]] = 0
    return bench


def of_vendor(bench: ManagedBench) -> RecordedDecision:
    """A decision that was chosen from what the vendor offers."""
    refreshed(bench)
    seen = observed(bench)
    base = pods(cluster()).snapshot()
    snapshot = msgspec.structs.replace(
        base, groups=seen.groups, candidates=seen.candidates, selections=seen.selections
    )
    options = msgspec.structs.replace(Options(), expander=("least-cost",))
    pools = tuple(ManagedPool(view.declaration, view.provider) for view in seen.selections)
    policy = Policy(name=NAME, mode=Mode.ACTIVE, options=options, managed_pools=pools)
    return decision_of(snapshot, policy)


def pods(built: ClusterBuilder) -> ClusterBuilder:
    return built.pending(9, "3", "7Gi", name="a").pending(4, "1500m", "20Gi", name="b", owner="b")


def decision_of(snapshot: Snapshot, policy: Policy) -> RecordedDecision:
    plan, _ = plan_cluster(snapshot, policy, Memory(), NOW, 0)
    plan = msgspec.structs.replace(plan, operations=())
    return RecordedDecision(snapshot, policy, Memory(), NOW, 0, plan)


@pytest.mark.parametrize("vendor", [exoscale, cherry])
def test_recorded_decision_with_600_candidates_is_replayed_byte_for_byte(
    vendor: Callable[[], ManagedBench], tmp_path: Path
) -> None:
    decision = of_vendor(vendor())
    assert len(decision.snapshot.candidates) >= 2 * TYPES
    assert {view.declaration for view in decision.snapshot.selections} == {"general", "batch"}
    assert any(growth.opens for growth in decision.plan.scale_ups)
    assert decision_place.record(decision, str(tmp_path))
    (file,) = tmp_path.rglob("*.decision")
    assert file.stat().st_size < 200_000
    assert main(["replay", str(file)]) == 0
    _, again = decode(file.read_bytes(), "file")
    assert len(again.snapshot.candidates) == len(decision.snapshot.candidates)


def offered_decision(**changes: Any) -> RecordedDecision:
    case = OfferedCluster().waiting(9, 1, 4)
    snapshot = msgspec.structs.replace(case.offered_snapshot(), **changes)
    return decision_of(snapshot, case.offered_policy())


def test_only_candidates_that_were_used_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managed_groups, "MOST_CANDIDATES", 2)
    decision = offered_decision()
    header, again = decode(encode(reduced(decision)), "file")
    used = {
        group.managed.choice.instance_type for group in again.snapshot.candidates if group.managed
    }
    assert used == {"s2", "c4"}
    assert replay(header, again).same


def test_recorded_candidates_have_no_annotations_that_nobody_reads() -> None:
    decision = offered_decision()
    first, *others = decision.snapshot.candidates
    assert first.template is not None
    template = msgspec.structs.replace(first.template, annotations={"example.com/key": "text"})
    candidates = (msgspec.structs.replace(first, template=template), *others)
    lean = reduced(offered_decision(candidates=candidates)).snapshot.candidates
    assert all(group.template is not None and not group.template.annotations for group in lean)
    assert len(lean) == 5


def test_decision_too_large_with_candidates_is_recorded_without_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decision = offered_decision()
    monkeypatch.setattr(recorded_decision, "LARGEST", len(msgspec.msgpack.encode(decision)) - 500)
    assert decision_place.record(decision, str(tmp_path))
    (file,) = tmp_path.rglob("*.decision")
    assert main(["replay", str(file), "-o", "json"]) == 1
    why = json.loads(capsys.readouterr().out)["why"]
    assert why == "it was too large to be recorded with the machines that managed pools could buy"


def test_recorded_decision_of_an_earlier_release_is_replayed() -> None:
    decision = decision_of(pods(cluster()).snapshot(), Policy(name=NAME))
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(decision))
    assert not {"candidates", "selections"} & old["snapshot"].keys()
    header, again = decode(encode(decision), "file")
    assert replay(header, again).same


# -- the last decision


class PassingDeployment:
    """The tables of a deployment, in which passes of one cluster store what they have decided."""

    def __init__(self, *, policy: str = POLICY) -> None:
        self.account, self.clock = MemoryAccount(), ManualClock(NOW)
        self.store: Store = self.account.store(TABLE, clock=self.clock)
        self.store.policies.put(NAME, policy, digest(policy), None)

    def passes(self, case: OfferedCluster, memory: Memory | None = None) -> Plan:
        """Makes a pass, but for its operations."""
        snapshot, policy = case.offered_snapshot(), case.offered_policy()
        known, now = memory or Memory(), self.clock()
        plan, _ = plan_cluster(snapshot, policy, known, now, 0)
        lease = self.store.leases.acquire(NAME, "pass", 60.0)
        recorder = Recorder(
            self.store.journal, None, self.clock, policy.options, emit=lambda _: None
        )
        result = record_plan(
            plan,
            snapshot,
            recorder,
            carry_over.read(lease.carry_over),
            lease.decision,
            seconds={"main": 0.1},
            state=build_cluster_state(snapshot, policy, known, now),
        )
        assert result.trouble == ()
        self.store.leases.release(
            lease,
            passed_at=now,
            decision=result.decision,
            carry_over=carry_over.write(result.left),
            succeeded=True,
        )
        return plan

    def items(self) -> list[dict[str, Any]]:
        """The rows of offers."""
        rows = self.account.scan(TableName=TABLE)["Items"]
        return [item for item in rows if item["item"]["S"].startswith(OFFERS)]

    def said(self, *words: str) -> tuple[int, str, str]:
        """The exit code, the output and the errors of a command."""
        out, errors = io.StringIO(), io.StringIO()
        with (
            mock.patch("chalicelib.store.Store", return_value=self.store),
            mock.patch("time.time", self.clock),
            mock.patch.dict("os.environ", {"OUTSCALER_TABLE": TABLE}),
            redirect_stdout(out),
            redirect_stderr(errors),
        ):
            code = main(words)
        return code, out.getvalue(), errors.getvalue()

    def explained(self, kind: str, name: str) -> Any:
        code, out, errors = self.said("explain", kind, name, "--cluster", NAME, "-o", "json")
        assert code == 0, errors
        return json.loads(out)

    def spoil(self, blob: bytes) -> None:
        """Overwrites the block."""
        (item,) = self.items()
        self.account.put_item(TableName=TABLE, Item=item | {"blob": {"B": blob}})


def crowd() -> OfferedCluster:
    """Pods that fit machines, no machine, and two declarations."""
    batch = msgspec.structs.replace(GENERAL, name="batch", limits=PoolLimits(cpu=4))
    case = OfferedCluster(GENERAL, batch).opened("s8", 1)
    return case.waiting(5, 3, 4).waiting(1, 64, 4)


def test_stored_decision_explains_pods_as_explain_does_live() -> None:
    case, deployment = crowd(), PassingDeployment()
    deployment.passes(case)
    context = context_of(case)
    waiting = [*context.plan.unschedulable[0].pods, *context.plan.scale_ups[0].pods]
    assert len(waiting) >= 3
    for pod in waiting:
        live = explain_pod.answer(context, pod)
        assert live.data["managedPools"], pod
        answer = deployment.explained("pod", pod)
        assert answer["managedPools"] == live.data["managedPools"]
        assert answer["says"] == list(live.says)
    _, text, _ = deployment.said("explain", "pod", waiting[-1], "--cluster", NAME)
    assert "general: 5 machine types x zones x markets > 5 candidates > 4 fit the pod." in text
    assert "Cheapest machines that fit" in text


@pytest.mark.parametrize("kind", ["s2", "s4", "c4", "r4"])
def test_stored_decision_explains_a_machine_as_explain_does_live(kind: str) -> None:
    case, deployment = OfferedCluster().waiting(8, 1, 4), PassingDeployment()
    failed = Backoff(until=NOW + 600, duration=600, last_failed=NOW, cls="OutOfStock")
    memory = Memory(groups={name_of(case, "r4"): GroupMemory(backoff=failed)})
    deployment.passes(case, memory)
    live = explain_group.answer(context_of(case, memory), name_of(case, kind))
    answer = deployment.explained("group", name_of(case, kind))
    assert answer["says"] == list(live.says)
    assert {key: answer[key] for key in live.data} == live.data


def test_pool_9_stored_decision_says_that_a_dearer_machine_is_dominated() -> None:
    case = OfferedCluster(catalogue=(entry("x", price=0.20), entry("s4"))).waiting(4, 1, 4)
    deployment = PassingDeployment()
    plan = deployment.passes(case)
    assert case.bought(plan) == {"s4": 1}
    answer = deployment.explained("group", name_of(case, "x"))
    assert answer["verdict"] == "notOpen"
    assert [reason["code"] for reason in answer["reasons"]] == ["CandidateDominated"]
    assert "s4 z1 on-demand, 0.1900 EUR" in answer["says"][1]


def test_pool_10_machine_beyond_a_limit_dominates_none_in_a_stored_decision() -> None:
    types = entry("x", cores=8, memory=32 * GIB, price=0.19), entry("s4", price=0.20)
    limited = msgspec.structs.replace(GENERAL, limits=PoolLimits(cpu=4))
    case = OfferedCluster(limited, catalogue=types).waiting(4, 1, 4)
    deployment = PassingDeployment()
    assert case.bought(deployment.passes(case)) == {"s4": 1}
    assert deployment.explained("group", name_of(case, "s4"))["verdict"] == "opens"
    large = deployment.explained("group", name_of(case, "x"))
    assert [reason["code"] for reason in large["reasons"]] == ["DeclarationLimit"]

    idle = OfferedCluster(limited, catalogue=types)
    deployment.passes(idle)
    assert deployment.explained("group", name_of(idle, "s4"))["reasons"] == []


def test_equal_offers_are_stored_once_and_again_after_a_day() -> None:
    deployment = PassingDeployment()
    for count in (1, 2, 3):
        deployment.passes(OfferedCluster().waiting(count, 64, 4))
        assert len(deployment.items()) == 1
    assert len(deployment.store.journal.recent(NAME)) == 3
    written = deployment.items()
    deployment.passes(OfferedCluster().waiting(3, 64, 4))
    assert deployment.items() == written
    assert len(deployment.store.journal.recent(NAME)) == 3, "a quiet pass writes nothing"
    deployment.clock.advance(86400.0)
    deployment.passes(OfferedCluster().waiting(3, 64, 4))
    assert len(deployment.items()) == 2


def test_offers_outlive_the_decisions_that_refer_to_them() -> None:
    deployment = PassingDeployment()
    deployment.passes(OfferedCluster().waiting(1, 64, 4))
    (item,) = deployment.items()
    last_reference = NOW + store_journal.OFFERS_USED
    assert int(item["expires_at"]["N"]) >= last_reference + store_journal.KEPT


def test_block_of_more_machines_than_a_row_takes_has_the_cheapest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_codec, "PIECE", 700)
    deployment = PassingDeployment()
    case = OfferedCluster(
        catalogue=tuple(entry(f"t{number:02}", price=1 + number) for number in range(40))
    )
    deployment.passes(case.waiting(1, 1, 4))
    (item,) = deployment.items()
    offers = deployment.store.journal.offers(NAME, item["item"]["S"].removeprefix(OFFERS))
    assert offers is not None
    assert 0 < len(offers.machines) < 40
    cheapest = [machine.choice.instance_type for machine in offers.machines]
    assert cheapest == [f"t{number:02}" for number in range(len(cheapest))]
    assert offers.selections[0].candidates == 40


def test_entry_too_large_with_fits_is_stored_without_them_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = PassingDeployment()
    case = OfferedCluster().waiting(1, 64, 4)
    plan = deployment.passes(case)
    (entry_of_plan,) = deployment.store.journal.recent(NAME)
    without = msgspec.structs.replace(entry_of_plan, fits=None)
    size = len(store_codec.pack(store_codec.encode(without))[0])
    assert size < len(store_codec.pack(store_codec.encode(entry_of_plan))[0])
    deployment = PassingDeployment()
    monkeypatch.setattr(store_codec, "PIECE", size)
    deployment.passes(case)
    (pod,) = plan.unschedulable[0].pods
    answer = deployment.explained("pod", pod)
    assert answer["verdict"] == "unschedulable"
    assert answer["says"][-1] == "No catalogue is stored with this decision."


@pytest.mark.parametrize(
    "blob",
    [
        b"rubbish",
        zlib.compress(b"{}")[:-3],
        zlib.compress(b'{"machines": [{"group": 1}]}'),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b" " * 40_000_000),
    ],
    ids=["no zlib", "cut off", "other types", "nested", "expands"],
)
def test_block_that_cannot_be_read_is_a_sentence_of_the_explanation(blob: bytes) -> None:
    deployment = PassingDeployment()
    case = OfferedCluster().waiting(1, 64, 4)
    (pod,) = deployment.passes(case).unschedulable[0].pods
    deployment.spoil(blob)
    says = deployment.explained("pod", pod)["says"]
    assert says[-1].startswith("Its catalogue cannot be shown: test: the row offers#")
    group = name_of(case, "s4")
    code, _, errors = deployment.said("explain", "group", group, "--cluster", NAME)
    assert code == 2
    assert "its catalogue cannot be shown" in errors
    assert errors.count("\n") == 1


def test_block_that_names_groups_wrongly_is_shown_as_far_as_it_goes() -> None:
    deployment = PassingDeployment()
    (pod,) = deployment.passes(OfferedCluster().waiting(1, 3, 4)).scale_ups[0].pods
    deployment.spoil(
        zlib.compress(b'{"selections": [{"declaration": "general", "provider": "x"}]}')
    )
    answer = deployment.explained("pod", pod)
    assert answer["managedPools"][0]["cheapest"] == []


def test_decision_of_an_earlier_release_says_that_it_has_no_catalogue() -> None:
    deployment = PassingDeployment()
    case = OfferedCluster().waiting(1, 64, 4)
    (pod,) = deployment.passes(case).unschedulable[0].pods
    (item,) = deployment.items()
    deployment.account.delete_item(
        TableName=TABLE, Key={key: item[key] for key in ("cluster", "item")}
    )
    answer = deployment.explained("pod", pod)
    assert answer["says"][-1] == "No catalogue is stored with this decision."
    assert "managedPools" not in answer
    code, _, errors = deployment.said("explain", "group", name_of(case, "s4"), "--cluster", NAME)
    assert code == 2
    assert "no catalogue is stored with this decision" in errors


def test_cluster_without_managed_pools_is_told_nothing_of_catalogues() -> None:
    deployment = PassingDeployment(policy=POLICY.partition("  managedPools")[0])
    case = OfferedCluster().waiting(1, 64, 4)
    case.pools = ()
    (pod,) = deployment.passes(case).unschedulable[0].pods
    assert "atalogue" not in " ".join(deployment.explained("pod", pod)["says"])
    assert deployment.items() == []
