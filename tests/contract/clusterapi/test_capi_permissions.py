"""The role we ship is enough, and no more than enough (clusterapi.md §8)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from chalicelib.model.operation import Kind
from chalicelib.model.outcome import Done, Failed, Pending
from infra.local.kube.auth import Rule
from infra.local.kube.server import ApiServer
from tests.contract.clusterapi.management import Management, fill, management, operation
from tests.contract.clusterapi.objects import GROUP, machine, machine_set

RBAC = Path(__file__).resolve().parents[3] / "infra" / "kubernetes" / "rbac-capi-management.yaml"
# What every authenticated user may read (system:discovery), and what rbac-workload.yaml gives.
ELSEWHERE = [
    Rule(verbs=("get",), urls=("/apis", "/apis/*")),
    Rule(verbs=("list",), groups=("",), resources=("nodes",)),
]


def granted() -> list[Rule]:
    documents = list(yaml.safe_load_all(RBAC.read_text()))
    [role] = [each for each in documents if each["kind"] == "ClusterRole"]
    return [
        Rule(verbs=(verb,), groups=tuple(rule["apiGroups"]), resources=(resource,))
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def use_everything(there: Management) -> None:
    """Each of the provider's changes, with its rare paths."""
    nodes = fill(there, 4, joined=3)
    there.add(machine_set("alone", replicas=1), machine("a-0", "alone", node="x"))
    provider = there.provider()
    assert len(provider.observe(nodes).groups) == 2
    assert isinstance(provider.shrink_target(operation(Kind.SHRINK, 4, 3)), Done)
    there.work()
    assert isinstance(provider.grow(operation(Kind.GROW, 1, 2, group="MachineSet/default/alone")), Done)
    there.fault("PATCH", "/scale", 404)
    assert isinstance(provider.remove(operation(Kind.REMOVE, 3, 2, 0)), Failed)      # takes its mark off again
    assert there.marked() == {}
    assert isinstance(provider.remove(operation(Kind.REMOVE, 3, 2, 0)), Pending)


def test_the_role_is_enough() -> None:
    with management([*granted(), *ELSEWHERE]) as there:
        use_everything(there)
        assert not [each for each in there.requests() if each.endswith(" 403")]


def test_every_rule_of_the_role_is_used() -> None:
    with management([*granted(), *ELSEWHERE]) as there:
        use_everything(there)
        used = _used(there.server)
    assert [rule for rule in granted() if (rule.verbs[0], rule.resources[0]) not in used] == []


def _used(server: ApiServer) -> set[tuple[str, str]]:
    used = set()
    for each in server.requests:
        parts = each.path.partition("?")[0].removeprefix(f"/apis/{GROUP}/v1beta2/").split("/")
        parts = parts[2:] if parts[0] == "namespaces" else parts
        resource = parts[0] if len(parts) < 3 else f"{parts[0]}/{parts[2]}"
        verb = each.method.lower() if len(parts) > 1 or each.method != "GET" else "list"
        used.add((verb, resource))
    return used


@pytest.mark.parametrize("resource", ["machinedeployments/scale", "machines"])
def test_without_the_right_to_write_the_refusal_names_what_is_missing(resource: str) -> None:
    kept = [rule for rule in granted() if (rule.verbs[0], rule.resources[0]) != ("patch", resource)]
    with management([*kept, *ELSEWHERE]) as there:
        fill(there, 2)
        outcome = there.provider().remove(operation(Kind.REMOVE, 2, 1, 0))
        assert isinstance(outcome, Failed)
        assert outcome.cls == "Unauthorized"
        assert f'"{resource}' in outcome.message
        assert (there.size(), there.marked()) == (2, {})
