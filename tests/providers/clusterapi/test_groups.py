"""Conversion of objects to groups, without an API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.model.node import Node
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.clusterapi.capi_state import CapiState, gives_way, rolling_out
from chalicelib.providers.clusterapi.node_groups import make_groups
from chalicelib.providers.clusterapi.settings import read_settings
from chalicelib.providers.kit.base import Observation
from tests.cases import each_row
from tests.providers.clusterapi.objects import (
    Json,
    as_machine,
    as_resource,
    bounds,
    deployment,
    machine,
    machine_set,
    node,
    owner,
    pool,
)

TOPOLOGY = {"MachineDeployment": "deployment-name", "MachinePool": "pool-name"}
OURS = node("control-plane", "c:///cp")  # tells which cluster is ours


def groups(
    objects: Sequence[Json],
    nodes: Sequence[Node] = (OURS,),
    settings: dict[str, str] | None = None,
    policies: Sequence[GroupPolicy] = (),
    **world: Any,
) -> Observation:
    by_kind: dict[str, list[Json]] = {}
    for obj in objects:
        by_kind.setdefault(obj["kind"], []).append(obj)
    machines = tuple(as_machine(obj) for obj in by_kind.pop("Machine", []))
    resources = {kind: tuple(as_resource(obj) for obj in found) for kind, found in by_kind.items()}
    return make_groups(
        CapiState(resources, machines, **world), nodes, read_settings(settings or {}), policies
    )


def ids(observed: Observation) -> list[str]:
    return [group.id for group in observed.groups]


@each_row("bad", ["-1", "1.5", " 3"])
def test_capi_invalid_group_affects_only_itself(bad: str) -> None:
    good = [deployment(f"md-{index}") for index in range(10)]
    observed = groups([*good, deployment("wrong", annotations=bounds(bad, "5"))])
    assert len(observed.groups) == 10
    [gap] = observed.gaps
    assert (gap.kind, gap.name) == ("MachineDeployment", "default/wrong")


def test_capi_resource_without_a_size_is_a_gap() -> None:
    observed = groups([deployment("md-0", replicas=None), deployment("md-1", replicas=0)])
    assert ids(observed) == ["MachineDeployment/default/md-1"]
    assert [gap.name for gap in observed.gaps] == ["default/md-0"]


def test_capi_resource_without_bounds_is_silently_not_a_group() -> None:
    observed = groups(
        [deployment("md-0", annotations={}), deployment("md-1", annotations=bounds("0", "0"))]
    )
    assert observed == Observation((), ())


def test_capi_machine_set_of_a_deployment_is_never_a_group() -> None:
    owned, alone = machine_set("md-0-abc", of="md-0"), machine_set("alone")
    both = groups([deployment("md-0"), owned, alone])
    assert ids(both) == ["MachineDeployment/default/md-0", "MachineSet/default/alone"]
    # also where its deployment is filtered out, has no bounds or is deleted
    assert ids(groups([owned, alone])) == ["MachineSet/default/alone"]


def test_capi_paused_group_is_neither_listed_nor_resolved() -> None:
    paused = deployment("md-0", annotations={**bounds(), "cluster.x-k8s.io/paused": ""})
    objects = [
        paused,
        machine_set("ms", of="md-0"),
        machine("m", "ms", provider_id="c:///1", node="n"),
    ]
    assert groups(objects, [OURS, node("n", "c:///1", of="m")]) == Observation((), ())
    by_condition = deployment("md-1", status={"conditions": [{"type": "Paused", "status": "True"}]})
    assert ids(groups([by_condition])) == []


def test_capi_label_on_the_deployment_alone_suffices() -> None:
    settings = {"labels": "owner=jim"}
    objects = [
        deployment("md-0", labels={"owner": "jim"}),
        machine_set("ms", of="md-0"),
        machine("m", "ms", provider_id="c:///1", node="n"),
        deployment("md-1"),
    ]
    [group] = groups(objects, [OURS, node("n", "c:///1")], settings).groups
    assert group.id == "MachineDeployment/default/md-0"
    assert [instance.node for instance in group.instances] == ["n"]


def test_capi_equal_machine_names_in_two_clusters_are_kept_apart() -> None:
    theirs = [
        deployment("other", cluster="c2"),
        machine_set("other-ms", of="other", cluster="c2"),
        machine("m2", "other-ms", cluster="c2", provider_id="gce://p/zone/n1", node="n1"),
    ]
    mine = [
        deployment("md-0"),
        machine_set("ms", of="md-0"),
        machine("m1", "ms", provider_id="gce://q/zone/n1", node="n1"),
    ]
    [group] = groups([*theirs, *mine], [node("n1", "gce://q/zone/n1")]).groups
    assert [(each.id, each.handle) for each in group.instances] == [
        ("gce://q/zone/n1", "default/m1")
    ]


def test_capi_membership_follows_controllers_by_uid_and_not_selectors() -> None:
    adopted = {"matches": "selector"}
    objects = [
        deployment("md-0"),
        machine_set("ms", of="md-0"),
        machine("mine", "ms"),
        machine("control-plane", "", owners=(owner("KubeadmControlPlane", "cp"),)),
        machine("alone", "", owners=()),
        machine(
            "namesake", "", owners=({**owner("MachineSet", "ms"), "uid": "of-an-earlier-set"},)
        ),
        machine("mere-owner", "", owners=(owner("MachineSet", "ms", controller=False),)),
    ]
    for obj in objects:
        obj["metadata"]["labels"].update(adopted)
    [group] = groups(objects).groups
    assert [each.handle for each in group.instances] == ["default/mine"]


def test_capi_only_the_nodes_own_of_two_clusters_is_observed() -> None:
    objects = [
        deployment("md-0"),
        deployment("md-1", cluster="c2"),
        deployment("md-2", namespace="elsewhere"),
    ]
    assert ids(groups(objects, [node("n", cluster="c2")])) == ["MachineDeployment/default/md-1"]
    assert ids(groups(objects, [node("n", namespace="elsewhere")])) == [
        "MachineDeployment/elsewhere/md-2"
    ]


@each_row(
    ("nodes", "settings", "found", "hint"),
    [
        # neither the nodes nor the settings name a cluster
        ([Node("plain", {}, {})], {}, [], "set clusterName"),
        ([], {"clusterName": "c1"}, [], "set namespace"),  # two clusters of that name
        ([], {"clusterName": "c1", "namespace": "default"}, ["md-0"], ""),
        ([], {"clusterName": "c9"}, [], "c9"),
        ([node("a"), node("b", cluster="c2")], {}, [], "clusterName"),  # the nodes disagree
        (
            [node("a"), node("b", cluster="c2")],
            {"clusterName": "c2"},
            ["md-1"],
            "annotations of a name",
        ),
        # settings take precedence over nodes
        ([node("a")], {"clusterName": "c2"}, ["md-1"], "annotations are ignored"),
    ],
)
def test_capi_ambiguous_cluster_leaves_everything_untouched(
    nodes: list[Node], settings: dict[str, str], found: list[str], hint: str
) -> None:
    objects = [
        deployment("md-0"),
        deployment("md-1", cluster="c2"),
        deployment("md-0", namespace="elsewhere"),
    ]
    observed = groups(objects, nodes, settings)
    assert [group.id.rpartition("/")[2] for group in observed.groups] == found
    if hint:
        [gap] = observed.gaps
        assert gap.kind == ("Node" if found else "provider/clusterapi")
        assert hint in gap.detail


@each_row("written", ["MachineDeployment/default/md-0", "default/md-0", "md-0"])
def test_capi_policy_entry_may_name_a_group_in_three_ways(written: str) -> None:
    entry = GroupPolicy("clusterapi", written, min=2, max=7, priority=9)
    [group] = groups([deployment("md-0", annotations={})], policies=[entry]).groups
    assert (group.min, group.max, group.priority) == (2, 7, 9)


def test_capi_policy_entry_matching_several_groups_blocks_all_of_them() -> None:
    entry = GroupPolicy("clusterapi", "md-0", max=3)
    observed = groups(
        [deployment("md-0"), machine_set("md-0"), deployment("other")], policies=[entry]
    )
    assert {group.id: bool(group.error) for group in observed.groups} == {
        "MachineDeployment/default/md-0": True,
        "MachineDeployment/default/other": False,
        "MachineSet/default/md-0": True,
    }
    [gap] = observed.gaps
    assert "MachineDeployment/default/md-0, MachineSet/default/md-0" in gap.detail


@each_row(
    ("entry", "says"),
    [
        (GroupPolicy("clusterapi", "md-9"), "there are: MachineDeployment/default/bare, Mach"),
        (GroupPolicy("clusterapi", "resting"), "is paused"),
        (GroupPolicy("clusterapi", "bare"), "neither the policy nor an annotation gives a maximum"),
    ],
)
def test_capi_policy_entry_without_a_group_says_what_would_be_right(
    entry: GroupPolicy, says: str
) -> None:
    resting = deployment("resting", annotations={**bounds(), "cluster.x-k8s.io/paused": "x"})
    observed = groups(
        [deployment("md-0"), resting, deployment("bare", annotations={})], policies=[entry]
    )
    assert ids(observed) == ["MachineDeployment/default/md-0"]
    [gap] = observed.gaps
    assert says in gap.detail


def test_capi_two_entries_for_one_group_are_reported_and_the_first_counts() -> None:
    entries = [
        GroupPolicy("clusterapi", "md-0", max=3),
        GroupPolicy("clusterapi", "default/md-0", max=5),
    ]
    observed = groups([deployment("md-0")], policies=entries)
    assert observed.groups[0].max == 3
    assert len(observed.gaps) == 1


def test_capi_group_that_cannot_scale_from_zero_is_listed_with_the_reason() -> None:
    [group] = groups([deployment("md-0", replicas=0)]).groups
    assert group.template is None
    assert "capacity.cluster-autoscaler.kubernetes.io/cpu" in group.template_error


def test_capi_groups_with_unreadable_machines_have_the_reason() -> None:
    world = CapiState(
        {"MachineDeployment": (as_resource(deployment("md-0")),)},
        (),
        unread={("Machine", ""): "Machines: forbidden"},
    )
    [group] = make_groups(world, [OURS], read_settings({}), ()).groups
    assert group.error == "Machines: forbidden"


@each_row(
    ("sets", "held"),
    [
        ([], ""),
        (
            [machine_set("a", of="md", revision="1"), machine_set("b", of="md", revision="2")],
            "MachineSet a",
        ),
        (
            [
                machine_set("a", of="md", revision="1", replicas=0),
                machine_set("b", of="md", revision="2"),
            ],
            "",
        ),
        (
            [
                machine_set("a", of="md", revision="1", replicas=0, status={"replicas": 1}),
                machine_set("b", of="md", revision="2"),
            ],
            "MachineSet a",
        ),
        (
            [
                machine_set("a", of="md", revision="9"),
                machine_set("b", of="md", revision="10", replicas=0),
            ],
            "Set a",
        ),
        ([machine_set("a", of="md", revision="x")], "'x'"),
        ([machine_set("a", of="md", revision=None), machine_set("b", of="md", revision="2")], ""),
    ],
)
def test_capi_rollout_blocks_removals(sets: list[Json], held: str) -> None:
    reason = rolling_out(as_resource(deployment("md")), [as_resource(each) for each in sets])
    assert held in reason
    assert bool(reason) is bool(held)
    [group] = groups([deployment("md"), *sets]).groups
    assert group.scale_down_held == reason


@each_row("where", [{"conditions": []}, {"v1beta2": {"conditions": []}}])
def test_capi_rollout_condition_counts_in_both_versions(where: Json) -> None:
    condition = {"type": "RollingOut", "status": "True"}
    (where.get("v1beta2") or where)["conditions"] = [condition]
    assert rolling_out(as_resource(deployment("md", status=where)), [])


def on_delete(
    name: str = "md", *, version: str = "v1beta2", paused: bool = False, **more: Any
) -> Json:
    made = deployment(name, **more)
    strategy = {"strategy": {"type": "OnDelete"}}
    made["spec"].update(
        {"paused": paused, **(strategy if version == "v1beta1" else {"rollout": strategy})}
    )
    return made


def sets(**sizes: int) -> list[Json]:
    """sets(a=1, b=2): revisions 1, 2 of md, requesting that many Machines."""
    return [
        machine_set(name, of="md", revision=str(at), replicas=size)
        for at, (name, size) in enumerate(sizes.items(), start=1)
    ]


@each_row("version", ["v1beta1", "v1beta2"])
@each_row(
    ("found", "held"),
    [
        (sets(a=3), ""),
        (sets(a=3, b=0), ""),  # all of one set, although all are outdated
        (sets(a=0, b=3), ""),
        (sets(a=2, b=1), "MachineSet a"),
        (sets(a=1, b=1, c=1), "they must be deleted manually"),
    ],
)
def test_capi_on_delete_deployment_is_not_blocked_forever(
    found: list[Json], held: str, version: str
) -> None:
    # RollingOut stays true for as long as an outdated Machine exists, so it has no meaning here
    waits = on_delete(
        version=version, status={"conditions": [{"type": "RollingOut", "status": "True"}]}
    )
    reason = rolling_out(as_resource(waits), [as_resource(each) for each in found])
    assert held in reason
    assert bool(reason) is bool(held)
    open_ends = len([each for each in found if each["spec"]["replicas"]]) > 2
    assert groups([waits, *found]).groups[0].scale_down_held == (reason if open_ends else "")


@each_row("paused", [False, True])
def test_capi_mixed_on_delete_deployment_blocks_all_but_outdated_machines(paused: bool) -> None:
    found = [*sets(a=1, b=1), machine("old", "a"), machine("new", "b")]
    [group] = groups([on_delete(paused=paused), *found]).groups
    held = {each.handle: each.held for each in group.instances}
    if paused:  # spec.paused: all sets shrink in proportion
        assert "spec.paused" in group.scale_down_held
        assert held == {"default/new": "", "default/old": ""}
    else:
        assert group.scale_down_held == ""
        assert held["default/old"] == ""
        assert "MachineSet a would become smaller" in held["default/new"]


@each_row(
    ("resource", "found", "name"),
    [
        (deployment("md"), sets(a=3), "a"),
        (deployment("md"), sets(a=3, b=0), "a"),
        (deployment("md"), sets(a=2, b=1), None),
        (deployment("md"), [], None),
        (on_delete(), sets(a=2, b=1), "a"),
        (on_delete(), sets(a=2, b=1, c=0), None),  # two outdated ones: the older one shrinks
        (on_delete(), sets(a=2, b=1, c=1), None),
        (on_delete(), [*sets(a=2), machine_set("odd", of="md", revision="x")], None),
        (on_delete(paused=True), sets(a=2, b=1), None),  # in proportion
    ],
)
def test_capi_removal_needs_certainty_about_the_set_that_shrinks(
    resource: Json, found: list[Json], name: str | None
) -> None:
    only = gives_way(
        "MachineDeployment", as_resource(resource), [as_resource(each) for each in found]
    )
    assert (only.metadata.name if only else None) == name


def test_capi_rollout_paused_midway_is_reported() -> None:
    paused = deployment("md")
    paused["spec"]["paused"] = True
    assert "spec.paused" in rolling_out(
        as_resource(paused), [as_resource(each) for each in sets(a=1, b=1)]
    )
    # all of one set: it scales, paused or not
    assert rolling_out(as_resource(paused), [as_resource(each) for each in sets(a=1)]) == ""


def test_capi_paused_cluster_pauses_all_its_groups_and_is_reported_once() -> None:
    entry = GroupPolicy("clusterapi", "md-0", max=3)
    objects = [
        deployment("md-0"),
        machine_set("alone"),
        pool("mp"),
        deployment("md-1", cluster="c2"),
    ]
    observed = groups(
        objects, policies=[entry], paused_clusters=frozenset({("default", "c1"), ("default", "c9")})
    )
    assert observed.groups == ()
    assert [(gap.kind, gap.name) for gap in observed.gaps] == [
        ("Cluster", "default/c1"),
        ("NodeGroup", "md-0"),
    ]
    assert ids(groups([deployment("md-0")], paused_clusters=frozenset({("elsewhere", "c1")}))) != []


@each_row("made", [deployment("w"), pool("w")])
def test_capi_group_sized_by_the_clusters_topology_is_untouched(made: Json) -> None:
    made["metadata"]["labels"][f"topology.cluster.x-k8s.io/{TOPOLOGY[made['kind']]}"] = "workers"
    fought = groups([made], topology_replicas=frozenset({("default", "c1", "workers")}))
    assert "spec.topology.workers" in fought.groups[0].error
    assert [gap.name for gap in fought.gaps] == ["default/w"]
    free = groups(
        [made],
        topology_replicas=frozenset({("default", "c1", "others"), ("default", "c2", "workers")}),
    )
    assert free.groups[0].error == ""


def test_capi_pool_machines_are_read_without_a_machine_set() -> None:
    world = CapiState(
        {
            "MachinePool": (as_resource(pool("mp")),),
            "MachineDeployment": (as_resource(deployment("md")),),
        },
        (),
        unread={("MachineSet", ""): "MachineSets: forbidden"},
    )
    found = {
        group.id: group.error for group in make_groups(world, [OURS], read_settings({}), ()).groups
    }
    assert found == {
        "MachineDeployment/default/md": "MachineSets: forbidden",
        "MachinePool/default/mp": "",
    }
