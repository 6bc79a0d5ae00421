"""Outdated Machines, rollouts, interruptible groups and MachineHealthChecks, without an API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.node import Node, Taint
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.clusterapi.capi_state import CapiState
from chalicelib.providers.clusterapi.machine_life import Repairers
from chalicelib.providers.clusterapi.models import CapiAnnotations, CapiHealthCheck, CapiResource
from chalicelib.providers.clusterapi.node_groups import make_groups
from chalicelib.providers.clusterapi.settings import read_settings
from tests.cases import each_row
from tests.providers.clusterapi.objects import (
    GROUP,
    Json,
    as_machine,
    as_resource,
    deployment,
    health_check,
    in_v1beta1,
    leaving,
    machine,
    machine_set,
    node,
    pool,
    pool_machine,
)
from tests.providers.clusterapi.test_groups import OURS, groups

INTERRUPTIBLE = f"{GROUP}/interruptible"
ON_DELETE: Json = {"rollout": {"strategy": {"type": "OnDelete"}}}
ROLLING: Json = {"rollout": {"strategy": {"type": "RollingUpdate"}}}


def with_spec(obj: Json, **spec: Any) -> Json:
    return {**obj, "spec": {**obj["spec"], **spec}}


def with_metadata(obj: Json, **fields: dict[str, str]) -> Json:
    metadata = obj["metadata"]
    return {
        **obj,
        "metadata": {
            **metadata,
            **{name: {**metadata[name], **more} for name, more in fields.items()},
        },
    }


def of_version(obj: Json, version: str) -> Json:
    """The same resource with a template of that version."""
    template = obj["spec"]["template"]
    return with_spec(obj, template={**template, "spec": {**template["spec"], "version": version}})


def read(objects: Sequence[Json], nodes: Sequence[Node] = (OURS,), **world: Any) -> NodeGroup:
    """The one group of these objects."""
    [group] = groups(objects, nodes, **world).groups
    return group


def by_machine(group: NodeGroup) -> dict[str, Instance]:
    return {instance.handle.rpartition("/")[2]: instance for instance in group.instances}


def two_revisions(spec: Json, *, old: int = 1, new: int = 1, **more: Any) -> list[Json]:
    """A MachineDeployment with `old` Machines of revision 1 and `new` ones of revision 2."""
    return [
        with_spec(deployment("md", replicas=old + new, **more), **spec),
        machine_set("one", of="md", revision="1", replicas=old),
        machine_set("two", of="md", revision="2", replicas=new),
        *(machine(f"old-{number}", "one") for number in range(old)),
        *(machine(f"new-{number}", "two") for number in range(new)),
    ]


# -- drift


def test_LIFE_9_machine_of_an_earlier_revision_is_outdated_under_on_delete() -> None:
    group = read(two_revisions(ON_DELETE))
    found = by_machine(group)
    assert found["old-0"].outdated == "MachineSet one of revision 1, new Machines are of 2"
    assert (found["new-0"].outdated, group.busy) == ("", "")
    assert (found["old-0"].held, bool(found["new-0"].held), group.scale_down_held) == ("", True, "")


def test_capi_all_machines_of_the_only_used_set_are_outdated() -> None:
    found = by_machine(read(two_revisions(ON_DELETE, old=2, new=0)))
    assert [bool(instance.outdated) for instance in found.values()] == [True, True]


def test_LIFE_9_rolling_deployment_is_busy_and_its_machines_are_not_outdated() -> None:
    group = read(two_revisions(ROLLING))
    assert group.busy == "rollout of MachineDeployment default/md"
    assert group.scale_down_held
    assert [instance.outdated for instance in group.instances] == ["", ""]


@each_row("spec", [ROLLING, {}])
def test_capi_deployment_whose_rollout_is_over_is_not_busy(spec: Json) -> None:
    assert read(two_revisions(spec, old=0, new=2)).busy == ""


def test_capi_condition_of_a_rollout_makes_a_deployment_busy() -> None:
    rolling = {"conditions": [{"type": "RollingOut", "status": "True"}]}
    assert read(two_revisions(ROLLING, old=0, new=2, status=rolling)).busy
    assert read(two_revisions(ON_DELETE, old=0, new=2, status=rolling)).busy == ""


@each_row("spec", [{**ROLLING, "paused": True}, {**ON_DELETE, "paused": True}])
def test_capi_paused_rollout_neither_makes_busy_nor_outdated(spec: Json) -> None:
    group = read(two_revisions(spec))
    assert (group.busy, [instance.outdated for instance in group.instances]) == ("", ["", ""])


@each_row("revision", ["two", "", None])
def test_capi_unknown_newest_revision_makes_no_machine_outdated(revision: str | None) -> None:
    objects = [
        with_spec(deployment("md", replicas=2), **ON_DELETE),
        machine_set("one", of="md", revision="1", replicas=1),
        machine_set("odd", of="md", revision=revision, replicas=1),
        machine("old-0", "one"),
        machine("new-0", "odd"),
    ]
    group = read(objects)
    assert ([instance.outdated for instance in group.instances], group.busy) == (["", ""], "")


def test_capi_taint_of_cluster_api_counts_where_revisions_do_not_tell() -> None:
    objects = [
        with_spec(deployment("md", replicas=1), **ON_DELETE),
        machine_set("one", of="md", revision=None, replicas=1),
        machine("m", "one", provider_id="c:///1", node="n"),
    ]
    taint = Taint("node.cluster.x-k8s.io/outdated-revision", "PreferNoSchedule")
    tainted = msgspec.structs.replace(node("n", "c:///1", of="m"), taints=(taint,))
    assert (
        by_machine(read(objects, [OURS, tainted]))["m"].outdated
        == "Cluster API has tainted its Node as outdated"
    )
    objects[0] = with_spec(objects[0], **ROLLING)
    assert by_machine(read(objects, [OURS, tainted]))["m"].outdated == ""


def test_capi_outdated_machine_says_what_differs_as_far_as_cluster_api_does() -> None:
    objects = two_revisions(ON_DELETE)
    objects[0] = of_version(objects[0], "v1.37.0")
    objects[3] = with_spec(objects[3], version="v1.36.3")
    condition = {
        "type": "UpToDate",
        "status": "False",
        "reason": "NotUpToDate",
        "message": "* Version is\n v1.36.3" * 99,
    }
    objects[3] = {**objects[3], "status": {"conditions": [condition]}}
    outdated = by_machine(read(objects))["old-0"].outdated
    assert "version v1.36.3, new Machines have v1.37.0; * Version is v1.36.3" in outdated
    assert len(outdated) < 400


@each_row(
    ("own", "new", "difference"),
    [
        ("v1.36.3", "v1.37.0", "version v1.36.3, new Machines have v1.37.0"),
        ("v1.37.0", "1.37.0", ""),
        (None, "v1.37.0", ""),
        ("v1.36.3", "", ""),
    ],
)
def test_capi_machine_of_a_set_or_pool_is_outdated_by_its_version(
    own: str | None, new: str, difference: str
) -> None:
    alone = of_version(machine_set("alone", replicas=1), new)
    assert (
        read([alone, with_spec(machine("m", "alone"), version=own)]).instances[0].outdated
        == difference
    )
    of_pool = of_version(pool("pool", replicas=1), new)
    group = read([of_pool, with_spec(pool_machine("m", "pool"), version=own)])
    assert (group.instances[0].outdated, group.busy) == (difference, "")


def test_capi_rolling_pool_is_busy_and_its_machines_are_not_outdated() -> None:
    rolling = {"conditions": [{"type": "RollingOut", "status": "True"}]}
    made = of_version(pool("pool", replicas=1, status=rolling), "v1.37.0")
    group = read([made, with_spec(pool_machine("m", "pool"), version="v1.36.3")])
    assert (group.busy, group.instances[0].outdated) == ("rollout of MachinePool default/pool", "")


def test_capi_leaving_machine_is_not_outdated() -> None:
    objects = two_revisions(ON_DELETE)
    objects[3] = leaving(objects[3])
    assert [instance.outdated for instance in read(objects).instances] == ["", ""]


def test_capi_machine_that_is_updated_in_place_is_busy() -> None:
    updating = machine("m", "alone", conditions=[{"type": "Updating", "status": "True"}])
    idle = machine("n", "alone", conditions=[{"type": "Updating", "status": "False"}])
    found = by_machine(read([machine_set("alone", replicas=2), updating, idle]))
    assert (found["m"].busy, found["n"].busy) == ("Cluster API: in-place update", "")


# -- spot


@each_row(
    "place",
    [
        "the template",
        "a Machine",
        "a Node",
        "a Node of a pool without Machines",
        "annotated capacity",
    ],
)
def test_capi_group_with_an_interruptible_label_is_a_spot_group(place: str) -> None:
    labels = {INTERRUPTIBLE: ""}
    alone, own = (
        machine_set("alone", replicas=1),
        machine("m", "alone", provider_id="c:///1", node="n"),
    )
    joined = node("n", "c:///1", of="m")
    assert not read([alone, own], [OURS, joined]).spot
    objects, nodes = [alone, own], [OURS, joined]
    if place == "the template":
        objects = [machine_set("alone", replicas=0, template={"labels": labels})]
    elif place == "a Machine":
        objects[1] = with_metadata(own, labels=labels)
    elif place == "a Node":
        nodes[1] = msgspec.structs.replace(joined, labels={**joined.labels, **labels})
    elif place == "annotated capacity":
        prefix = "capacity.cluster-autoscaler.kubernetes.io/"
        annotations = {
            f"{prefix}cpu": "4",
            f"{prefix}memory": "8Gi",
            f"{prefix}labels": f"{INTERRUPTIBLE}=",
        }
        objects[0] = with_metadata(alone, annotations=annotations)
    else:
        objects = [pool("pool", ["c:///1"])]
        nodes[1] = msgspec.structs.replace(joined, labels={**joined.labels, **labels})
    group = read(objects, nodes)
    assert (group.spot, group.restarts) == (True, False)


def test_capi_label_that_denies_is_no_spot() -> None:
    assert not read(
        [machine_set("alone", replicas=0, template={"labels": {INTERRUPTIBLE: "false"}})]
    ).spot


# -- MachineHealthChecks


def checks(*objects: Json) -> tuple[CapiHealthCheck, ...]:
    return tuple(msgspec.convert(obj, CapiHealthCheck) for obj in objects)


def repairer(check: Json, own: Json | None = None) -> str:
    own = machine("m", "alone") if own is None else own
    objects = [machine_set("alone", replicas=1), own]
    return read(objects, health_checks=checks(check)).instances[0].repaired_by


@each_row("version", ["v1beta1", "v1beta2"])
def test_LIFE_16_health_check_repairs_the_machines_that_it_selects(version: str) -> None:
    check = health_check("workers")
    assert (
        repairer(in_v1beta1(check) if version == "v1beta1" else check)
        == "MachineHealthCheck default/workers"
    )


@each_row(
    ("selector", "selects"),
    [
        ({}, False),
        ({"matchLabels": {}}, False),
        ({"matchLabels": {"pool": "a"}}, True),
        ({"matchLabels": {"pool": "b"}}, False),
        ({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "pool", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "pool", "operator": "Resembles", "values": ["a"]}]}, False),
        (
            {
                "matchLabels": {"pool": "a"},
                "matchExpressions": [{"key": "no", "operator": "Exists"}],
            },
            False,
        ),
    ],
)
def test_capi_selector_of_a_health_check_decides(selector: Json, selects: bool) -> None:
    own = with_metadata(machine("m", "alone"), labels={"pool": "a"})
    assert bool(repairer(health_check("a", selector), own)) is selects


@each_row(
    "check",
    [
        health_check("a", cluster="c2"),
        health_check("a", namespace="other"),
        {
            **health_check("a"),
            "metadata": {
                "name": "a",
                "namespace": "default",
                "annotations": {f"{GROUP}/paused": ""},
            },
        },
    ],
)
def test_capi_foreign_or_paused_health_check_repairs_nothing(check: Json) -> None:
    assert repairer(check) == ""


def test_capi_health_check_of_another_cluster_repairs_no_machine_with_equal_labels() -> None:
    labels = {"pool": "a"}
    machines = []
    for cluster in ("c1", "c2"):
        made = machine("m", "alone", cluster=cluster)
        machines.append(as_machine({**made, "metadata": {**made["metadata"], "labels": labels}}))
    both = checks(
        health_check("a", {"matchLabels": labels}),
        health_check("b", {"matchLabels": labels}, cluster="c2"),
    )
    repairers = Repairers(CapiState({}, tuple(machines), health_checks=both), CapiAnnotations())
    assert [repairers.of(own) for own in machines] == [
        "MachineHealthCheck default/a",
        "MachineHealthCheck default/b",
    ]


@each_row("annotation", ["skip-remediation", "paused"])
def test_capi_machine_that_health_checks_skip_is_repaired_by_none(annotation: str) -> None:
    own = with_metadata(machine("m", "alone"), annotations={f"{GROUP}/{annotation}": ""})
    assert repairer(health_check("a"), own) == ""


@each_row(
    "external",
    [
        {"remediation": {"templateRef": {"kind": "T", "name": "t"}}},
        {"remediationTemplate": {"kind": "T", "name": "t"}},
    ],
)
def test_capi_machine_of_a_pool_is_only_repaired_by_an_external_remediation(external: Json) -> None:
    objects = [pool("pool", replicas=1), pool_machine("m", "pool")]
    for more, expected in (({}, ""), (external, "MachineHealthCheck default/a")):
        group = read(objects, health_checks=checks(health_check("a", **more)))
        assert group.instances[0].repaired_by == expected


def test_capi_unlisted_or_too_many_health_checks_may_repair_any_machine() -> None:
    objects = [machine_set("alone", replicas=1), machine("m", "alone")]
    unread = {("MachineHealthCheck", ""): "forbidden"}
    assert "could not be listed" in read(objects, unread=unread).instances[0].repaired_by
    many = checks(health_check("other", {"matchLabels": {"x": "y"}})) * 1001
    assert "more than 1000" in read(objects, health_checks=many).instances[0].repaired_by
    assert read(objects, health_checks=many[:1000]).instances[0].repaired_by == ""


# -- age


def created_at(obj: Json, created: object) -> Json:
    """The same Machine with that creationTimestamp."""
    return {**obj, "metadata": {**obj["metadata"], "creationTimestamp": created}}


def ages(created: object) -> list[tuple[float, float]]:
    """`born` and `created` of a Machine of a MachineDeployment and one of a MachinePool with that
    timestamp, read in the first minute of 2026-05-02."""
    objects = [
        deployment("md-0"),
        machine_set("ms", of="md-0"),
        created_at(machine("m", "ms", provider_id="c:///1", node="n"), created),
        pool("mp-0", ["c:///2"]),
        created_at(pool_machine("p", "mp-0", provider_id="c:///2", node="o"), created),
    ]
    parsed = tuple(as_machine(obj) for obj in objects if obj["kind"] == "Machine")
    resources: dict[str, tuple[CapiResource, ...]] = {
        obj["kind"]: (as_resource(obj),) for obj in objects if obj["kind"] != "Machine"
    }
    nodes = (OURS, node("n", "c:///1"), node("o", "c:///2"))
    observed = make_groups(
        CapiState(resources, parsed),
        nodes,
        read_settings({}),
        (),
        now=parse_time("2026-05-02T00:00:30Z"),
    )
    instances = [instance for group in observed.groups for instance in group.instances]
    assert sorted(instance.node for instance in instances) == ["n", "o"]
    return [(instance.born, instance.created) for instance in instances]


def test_capi_machine_has_been_there_since_its_creation_timestamp() -> None:
    assert ages("2026-05-01T00:00:00Z") == [(parse_time("2026-05-01T00:00:00Z"), 0.0)] * 2
    assert ages("2026-05-02T00:00:30Z") == [(parse_time("2026-05-02T00:00:30Z"), 0.0)] * 2


@each_row(
    "created",
    [
        None,
        "",
        "yesterday",
        "2026-05-01",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "2026-05-02T00:00:31Z",
        "9999-12-31T23:59:59Z",
        f"2026-05-01T00:00:00.{'0' * 1_000_000}Z",
    ],
)
def test_capi_unreadable_or_future_creation_of_a_machine_is_no_age(created: object) -> None:
    assert ages(created) == [(0.0, 0.0)] * 2
