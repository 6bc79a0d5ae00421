"""Objects of the cluster among the input are described, and priorities can be
written into the policy.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.cli.migrate.autoscaler_input import ImportArguments
from chalicelib.cli.migrate.autoscaler_policy import Converted, convert
from chalicelib.cli.migrate.report import Verdict
from tests.cases import each_row
from tests.unit.cli.importers.autoscaler_inputs import autoscaler, literal

SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
EXOSCALE = (
    "--cloud-provider=exoscale",
    "--nodes=1:10:web",
    "--nodes=0:5:web-gpu",
    "--nodes=0:3:spot",
)


def kind(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "prod", **more.pop("metadata", {})},
        **more,
    }


def deployment(annotations: dict[str, Any]) -> dict[str, Any]:
    return kind("workers", "MachineDeployment", metadata={"annotations": annotations})


def priorities(text: str) -> dict[str, Any]:
    name = "cluster-autoscaler-priority-expander"
    return kind(name, "ConfigMap", data={"priorities": text}, metadata={"namespace": "kube-system"})


def imported(*objects: dict[str, Any], flags: tuple[str, ...] = (), **wanted: Any) -> Converted:
    read = autoscaler(
        *(flags or ("--cloud-provider=clusterapi",)),
        variables=(literal("EXOSCALE_ZONE", "ch-gva-2"),),
    )
    placed = tuple(("groups.yaml:5", each) for each in objects)
    return convert(
        msgspec.structs.replace(read, objects=placed), ImportArguments(name="shop", **wanted)
    )


def rows(found: Converted) -> str:
    return "\n".join(f"{row.verdict} | {row.word} | {row.text}" for row in found.rows)


@each_row(
    "document, row",
    [
        (
            deployment({}),
            "read live | MachineDeployment prod/workers | has no bounds in its annotations",
        ),
        (
            deployment({f"{SIZE}min-size": "1", f"{SIZE}max-size": 5}),
            "bounds 1 to 5 of its annotations",
        ),
        (
            deployment(
                {
                    f"{SIZE}min-size": "1",
                    f"{SIZE}max-size": "5",
                    "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": "5m",
                }
            ),
            "bounds 1 to 5 of its annotations; options scaledownunneededtime",
        ),
        (
            deployment({f"{SIZE}min-size": "0", f"{SIZE}max-size": "5", f"{CAPACITY}cpu": "4"}),
            (
                "told | MachineDeployment prod/workers | may be empty and has no annotation "
                f"{CAPACITY}memory"
            ),
        ),
        (
            kind("b", "CapacityBuffer", spec={"replicas": 3, "podTemplateRef": {"name": "web"}}),
            (
                "[{name: b, pods: 3, cpu: CPU, memory: MEMORY}]; CPU and MEMORY are those of pod "
                "template web"
            ),
        ),
        (
            kind("b", "CapacityBuffer", spec={"limits": {"cpu": "4", "memory": "8Gi"}}),
            (
                "does not read such objects; nearest: headroom: [{name: b, pods: 1, cpu: 4, "
                "memory: 8Gi}]"
            ),
        ),
        (
            kind("b", "CapacityBuffer", spec={"percentage": 10}),
            "headroom: [{name: b, percent: 10}]",
        ),
        (kind("p", "ProvisioningRequest"), "not here | ProvisioningRequest p"),
        (kind("c", "Cluster"), "read live | Cluster c"),
        ({"kind": "MachineSet", "metadata": "x"}, "read live | MachineSet default/"),
        ({"kind": "CapacityBuffer", "spec": []}, "not here | CapacityBuffer"),
    ],
)
def test_objects_state_what_counts_and_what_is_missing(document: dict[str, Any], row: str) -> None:
    assert row in rows(imported(document))


@each_row(
    "text, row",
    [
        (
            "10:\n- .*web.*\n",
            "read live | ConfigMap cluster-autoscaler-priority-expander | read in each pass",
        ),
        (
            "10:\n- (?=a)\n",
            "not here | ConfigMap cluster-autoscaler-priority-expander | cannot be used",
        ),
        (
            f"10:\n- {'a' * 1001}\n",
            "not here | ConfigMap cluster-autoscaler-priority-expander | cannot be used",
        ),
        ("- a\n", "the expander priority then filters nothing"),
    ],
)
def test_patterns_of_priorities_are_checked(text: str, row: str) -> None:
    assert row in rows(
        imported(priorities(text), flags=("--cloud-provider=clusterapi", "--expander=priority"))
    )


def test_priorities_without_their_expander_have_no_effect() -> None:
    assert "no effect | ConfigMap cluster-autoscaler-priority" in rows(
        imported(priorities("10:\n- a\n"))
    )


def test_literal_names_of_priorities_move_to_groups_of_the_policy() -> None:
    text = "50:\n- ^web$\n- spot\n10:\n- .*gpu\n- web\n- ^spot$\n"
    found = imported(
        priorities(text), flags=(*EXOSCALE, "--expander=priority"), inline_priorities=True
    )
    spec = found.document["spec"]
    assert spec["nodeGroups"] == [
        {"provider": "exoscale", "id": "web", "min": 1, "max": 10, "priority": 50},
        {"provider": "exoscale", "id": "spot", "min": 0, "max": 3, "priority": 50},
    ]
    assert spec["providers"]["exoscale"]["nodes"] == ["0:5:web-gpu"]
    assert "not here | 10: '.*gpu' | does not name one group literally" in rows(found)
    assert "not here | 10: 'web' |" in rows(found)
    assert "told | 10: '^spot$' | spot has priority 50 already" in rows(found)


def test_groups_of_clusterapi_are_named_by_their_objects() -> None:
    flags = ("--cloud-provider=clusterapi", "--expander=priority")
    config = priorities("10:\n- MachineDeployment/prod/workers\n")
    found = imported(config, deployment({}), flags=flags, inline_priorities=True)
    group = {"provider": "clusterapi", "id": "MachineDeployment/prod/workers", "priority": 10}
    assert found.document["spec"]["nodeGroups"] == [group]


def test_priorities_stay_in_the_cluster_unless_the_author_wants_them_here() -> None:
    found = imported(priorities("10:\n- ^web$\n"), flags=(*EXOSCALE, "--expander=priority"))
    assert "nodeGroups" not in found.document["spec"]


def test_the_expander_price_is_told_to_need_prices() -> None:
    found = imported(flags=("--cloud-provider=clusterapi", "--expander=price"))
    assert [
        row.path for row in found.rows if row.verdict is Verdict.TOLD and "price" in row.word
    ] == ["spec.prices"]


def test_the_expander_price_needs_none_where_the_provider_has_prices() -> None:
    flags = (
        "--cloud-provider=cherryservers",
        "--cluster-name=a",
        "--nodes=0:1:a",
        "--expander=price",
    )
    assert "--expander=price | the policy has no prices" not in rows(imported(flags=flags))


def test_variables_that_no_provider_reads_have_a_row_without_their_value() -> None:
    read = autoscaler(
        "--cloud-provider=clusterapi", variables=(literal("SOME_TOKEN", "hush"), literal("A", "b"))
    )
    found = convert(read, ImportArguments(name="shop"))
    assert {row.word: row.verdict for row in found.rows if row.word in ("SOME_TOKEN", "A")} == {
        "SOME_TOKEN": Verdict.NO_EFFECT,
        "A": Verdict.NO_EFFECT,
    }
    assert "hush" not in str(found)
