"""Managed pools in the demonstration: names of their groups, lines about them, and its policy."""

from __future__ import annotations

from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.operation import Operation, OperationKind, OperationSpec
from chalicelib.policy.load import load
from chalicelib.store import Store
from infra.demo import fixture
from infra.demo.console import Ledger
from infra.demo.decision_narrator import Narrator
from infra.emulators.memory_table import MemoryAccount

NOW = 1_795_294_020.0
GROUP = "osc-bd8e3a-studio-d2ba9c50a1"
TYPE = "node.kubernetes.io/instance-type"


def _operation(kind: OperationKind, **fields: object) -> Operation:
    spec = OperationSpec("op-" + kind.value, "shop", "exoscale", GROUP, kind, "plan", NOW, **fields)  # type: ignore[arg-type]
    return Operation(spec)


def _told(*operations: Operation) -> tuple[list[str], Narrator]:
    lines: list[str] = []
    store: Store = MemoryAccount().store("demo", clock=lambda: NOW)
    narrator = Narrator(
        "shop", store, lambda: NOW, Ledger(), lambda who, words: lines.append(words), {"g": "lean"}
    )
    for operation in operations:
        narrator._meet(operation)
    return lines, narrator


def test_groups_of_managed_pools_are_named_by_declaration_and_machine_type() -> None:
    choice = MachineChoice("studio", "standard.large", "ch-gva-2")
    grown = _operation(OperationKind.SCALE_UP, from_size=0, to_size=2, choice=choice)
    lines, narrator = _told(grown, _operation(OperationKind.REMOVE_GROUP))
    assert lines == [
        "plan: grow studio standard.large from 0 to 2 for a rule",
        "plan: delete the empty group studio standard.large",
    ]
    assert narrator.named(f"Nodepool {GROUP}: full") == "Nodepool studio standard.large: full"
    node = f"k8s-{GROUP}-abcdefgh"
    assert narrator.named(node) == node, "the name of a node is not taken apart"


def test_nodes_of_managed_pools_have_the_names_of_their_groups() -> None:
    labels = {"pool": "studio", "outscaler.dev/pool": "studio", TYPE: "standard.huge"}
    assert fixture.group_name(labels) == "studio standard.huge"
    tagged = {"pool": "osc-bd8e3a-cellar-4ecd318ea4", TYPE: "cloud_vps_4"}
    assert fixture.group_name(tagged) == "cellar cloud_vps_4"
    assert fixture.group_name({"pool": "lean", TYPE: "g-4"}) == "lean"


def test_policy_of_managed_pools_chooses_by_cost_and_removes_sooner() -> None:
    sections = """{"exoscale": {"zone": "ch-gva-2", "credentialsSecret": "outscaler/shared/exo"},
        "cherryservers": {"clusterName": "shop", "credentialsSecret": "outscaler/shared/cherry",
        "nodeGroupDefs": {"default": {"projectId": 1, "region": "LT-Siauliai",
        "plan": "amd-ryzen-9950x", "os": "ubuntu_24_04_64bit", "cloudInit": "#!/bin/sh"}}}}"""
    base = fixture.policy(sections, "[]", "arn:aws:sns:eu-central-1:123456789012:outscaler-events")
    made, _ = load(fixture.with_managed_pools(base), place="policy")
    assert [pool.name for pool in made.managed_pools] == [fixture.STUDIO, fixture.CELLAR]
    options = made.options
    assert options.expander == ("least-cost",)
    times = (options.scale_down_unneeded_time, options.scale_down_delay_after_add)
    assert times == (fixture.QUICK, fixture.QUICK)
