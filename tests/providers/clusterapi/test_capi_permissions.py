"""The shipped RBAC roles are sufficient and minimal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.kube.auth import RbacRule
from infra.emulators.kube.server import ApiServer
from tests.providers.clusterapi.management import Management, fill, management, operation
from tests.providers.clusterapi.objects import (
    GROUP,
    cluster,
    health_check,
    machine,
    machine_set,
    node,
    pool,
    pool_machine,
    resource,
)
from tests.reference_data import SHARED, needs_shared

FOLDER = Path(__file__).resolve().parents[3] / "infra" / "kubernetes"
WHOLE, NAMESPACED = FOLDER / "rbac-capi-management.yaml", FOLDER / "rbac-capi-namespaced.yaml"
# Rights of every authenticated user (system:discovery), and those of rbac-workload.yaml.
ELSEWHERE = [
    RbacRule(verbs=("get",), urls=("/apis", "/apis/*")),
    RbacRule(verbs=("list",), groups=("",), resources=("nodes",)),
]


def documents(path: Path) -> dict[str, dict[str, Any]]:
    """kind -> document."""
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}


def granted(path: Path = WHOLE, namespaces: tuple[str, ...] = ()) -> list[RbacRule]:
    """Returns the rules of the role, one verb and resource each."""
    found = documents(path)
    return [
        RbacRule(
            verbs=(verb,),
            groups=tuple(rule["apiGroups"]),
            resources=(resource,),
            namespaces=namespaces,
        )
        for rule in found.get("ClusterRole", found.get("Role", {}))["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def story(there: Management, settings: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Runs each change of the provider with its rare branches; each step records its
    result, refusals included."""
    nodes = [*fill(there, 4, joined=3), node("x"), node("y")]
    there.add(
        cluster(),
        machine_set("alone", replicas=1),
        machine("a-0", "alone", node="x"),
        pool("pool", replicas=1),
        pool_machine("p-0", "pool", provider_id="c:///p-0", node="y"),
    )
    # not among the real definitions at hand
    if there.store.resources.find("machinehealthchecks", GROUP):
        there.add(health_check("all"))
    provider = there.provider(settings=settings)

    def observed() -> str:
        found = provider.observe(nodes)
        groups = [
            (each.id, len(each.instances), sorted({i.repaired_by for i in each.instances}))
            for each in found.groups
        ]
        return f"{groups} {sorted(gap.kind for gap in found.gaps)}"

    yield observed
    yield lambda: str(provider.decrease_target(operation(OperationKind.DECREASE_TARGET, 4, 3)))
    there.work()
    yield lambda: str(
        provider.scale_up(operation(OperationKind.SCALE_UP, 1, 2, group="MachineSet/default/alone"))
    )
    yield lambda: str(
        provider.scale_up(operation(OperationKind.SCALE_UP, 1, 2, group="MachinePool/default/pool"))
    )
    there.fault("PATCH", "/scale", 404, times=3)
    yield (
        lambda: (
            f"{provider.delete_nodes(operation(OperationKind.DELETE_NODES, 3, 2, 0))} "
            f"{there.marked()}"
        )
    )  # removes its annotation again
    there.server.faults.clear()
    yield lambda: str(provider.delete_nodes(operation(OperationKind.DELETE_NODES, 3, 2, 0)))
    there.add(cluster(paused=True))
    yield lambda: str(provider.scale_up(operation(OperationKind.SCALE_UP, 2, 3)))


def reported(
    rules: list[RbacRule], settings: dict[str, str], crds: Path | None = None
) -> tuple[list[str], ApiServer]:
    """Returns the results of the story under these rules."""
    said = []
    with management([*rules, *ELSEWHERE], crds=crds) as there:
        for step in story(there, settings):
            try:
                said.append(step())
            except ProviderError as error:
                said.append(repr(error))
    return said, there.server


ROLES = pytest.mark.parametrize(
    ("rules", "settings"),
    [(granted(), {}), (granted(NAMESPACED, ("default",)), {"namespace": "default"})],
    ids=["whole cluster", "one namespace"],
)


@ROLES
def test_capi_role_suffices_and_each_of_its_rules_is_used(
    rules: list[RbacRule], settings: dict[str, str]
) -> None:
    said, server = reported(rules, settings)
    assert [each for each in server.requests if each.status == 403] == []
    assert said[0].endswith(" []")
    assert [each.partition("(")[0] for each in said[1:]] == [
        "Succeeded",
        "Succeeded",
        "Succeeded",
        "Failed",
        "InProgress",
        "Failed",
    ]
    used = _used(server)
    assert [rule for rule in rules if (rule.verbs[0], rule.resources[0]) not in used] == []


def _used(server: ApiServer) -> set[tuple[str, str]]:
    used = set()
    for each in server.requests:
        parts = each.path.partition("?")[0].removeprefix(f"/apis/{GROUP}/v1beta2/").split("/")
        parts = parts[2:] if parts[0] == "namespaces" else parts
        resource = parts[0] if len(parts) < 3 else f"{parts[0]}/{parts[2]}"
        verb = each.method.lower() if len(parts) > 1 or each.method != "GET" else "list"
        used.add((verb, resource))
    return used


@pytest.fixture(scope="module")
def with_all() -> list[str]:
    return reported(granted(), {})[0]


def test_capi_permission_story_is_deterministic(with_all: list[str]) -> None:
    assert reported(granted(NAMESPACED), {})[0] == with_all


@needs_shared
def test_capi_role_suffices_for_the_real_cluster_api_definitions(with_all: list[str]) -> None:
    said, server = reported(granted(), {}, SHARED / "data" / "capi-crds")
    assert said[1:] == with_all[1:]
    assert said[0] == with_all[0].replace("MachineHealthCheck default/all", "")
    assert [each for each in server.requests if each.status == 403] == []


@pytest.mark.parametrize(
    "missing", granted(), ids=lambda rule: f"{rule.verbs[0]} {rule.resources[0]}"
)
def test_capi_each_rule_of_the_role_is_needed(missing: RbacRule, with_all: list[str]) -> None:
    said, _ = reported([rule for rule in granted() if rule != missing], {})
    assert said != with_all


def test_capi_single_namespace_role_has_the_same_rules() -> None:
    whole, namespaced = documents(WHOLE), documents(NAMESPACED)
    assert whole["ClusterRole"]["rules"] == namespaced["Role"]["rules"]
    assert commented(WHOLE) == commented(NAMESPACED)
    for found, role in ((whole, "ClusterRole"), (namespaced, "Role")):
        binding = found[f"{role}Binding"]
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
            role,
            found[role]["metadata"]["name"],
        )
        assert binding["metadata"].get("namespace") == found[role]["metadata"].get("namespace")
        account = found["ServiceAccount"]["metadata"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]


def test_capi_single_namespace_role_needs_the_namespace_in_the_settings() -> None:
    with management([*granted(NAMESPACED, ("default",)), *ELSEWHERE]) as there:
        nodes = fill(there, 2)
        with pytest.raises(ProviderError, match="set namespace in providers"):
            there.provider().observe(nodes)
        assert len(there.provider(settings={"namespace": "default"}).observe(nodes).groups) == 1


def test_capi_single_namespace_role_is_first_in_the_documents() -> None:
    for page in ("docs/providers/clusterapi.md", "docs/deploy.md"):
        text = (FOLDER.parents[1] / page).read_text("utf-8")
        assert 0 < text.index(NAMESPACED.name) < text.index(WHOLE.name)


def test_capi_service_account_equals_that_of_the_workload_cluster() -> None:
    workload = documents(FOLDER / "rbac-workload.yaml")["ServiceAccount"]
    assert documents(WHOLE)["ServiceAccount"] == workload


def commented(path: Path) -> dict[str, Any]:
    """Returns the commented example rule for infrastructure objects."""
    lines = [line.strip().removeprefix("#")[1:] for line in path.read_text().splitlines()]
    start = next(at for at, line in enumerate(lines) if "infrastructure.cluster.x-k8s.io]" in line)
    rules: list[dict[str, Any]] = yaml.safe_load("\n".join(lines[start : start + 3]))
    return rules[0]


def test_capi_example_infrastructure_rule_suffices_to_read_a_capacity() -> None:
    example = commented(WHOLE)
    assert example["verbs"] == ["get"]
    own = RbacRule(
        verbs=tuple(example["verbs"]),
        groups=tuple(example["apiGroups"]),
        resources=("localmachinetemplates",),
    )
    cpus = {}
    for name, rules in (("with", [own]), ("without", [])):
        with management([*granted(), *rules, *ELSEWHERE]) as there:
            nodes = fill(there, 1)
            empty = resource("MachineDeployment", "empty", replicas=0)
            empty["spec"]["template"]["spec"]["infrastructureRef"].update(
                kind="LocalMachineTemplate", name="t"
            )
            there.add(empty)
            there.store.load(
                "localmachinetemplates",
                [
                    {
                        "metadata": {"name": "t", "namespace": "default"},
                        "spec": {},
                        "status": {"capacity": {"cpu": "4", "memory": "8Gi"}},
                    }
                ],
                example["apiGroups"][0],
            )
            [group] = [
                each
                for each in there.provider().observe(nodes).groups
                if each.id.endswith("/empty")
            ]
            cpus[name] = group.template.allocatable["cpu"] if group.template else None
    assert cpus == {"with": 4000, "without": None}


@pytest.mark.parametrize("missing", ["machinedeployments/scale", "machines"])
def test_capi_refused_write_names_the_missing_permission(missing: str) -> None:
    kept = [rule for rule in granted() if (rule.verbs[0], rule.resources[0]) != ("patch", missing)]
    with management([*kept, *ELSEWHERE]) as there:
        fill(there, 2)
        outcome = there.provider().delete_nodes(operation(OperationKind.DELETE_NODES, 2, 1, 0))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unauthorized"
        assert f'"{missing}' in outcome.message
        assert (there.size(), there.marked()) == (2, {})
