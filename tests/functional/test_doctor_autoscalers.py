"""`outscaler doctor` finds another autoscaler by its lease, its workload,
its status and its taints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.cli.doctor.other_autoscalers import check_activity, check_status, check_traces
from chalicelib.cluster.objects import OWN_MANAGER
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED
from chalicelib.model.operation import OPERATION_ANNOTATION
from chalicelib.model.timestamps import format_time
from chalicelib.net.http_session import AGENT
from chalicelib.policy.settings.cluster_policy import Policy
from tests.cases import each_row
from tests.functional.doctor_cases import (
    ACTIVE,
    NOW,
    SHADOW,
    client,
    cluster,
    context,
    grouped,
    rules_of,
    told,
    with_options,
)
from tests.functional.saved_cluster import node


def lease(name: str = "cluster-autoscaler", age: float = 8, holder: str = "ca-1") -> dict[str, Any]:
    renewed = f"{format_time(NOW - age)[:-1]}.000000Z"
    return {
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15},
    }


def deployment(
    *flags: str, ready: int = 1, image: str = "registry.test/cluster-autoscaler:v1.30.0"
) -> dict[str, Any]:
    container = {"name": "ca", "image": image, "command": ["./cluster-autoscaler", *flags]}
    return {
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "ca"}},
            "template": {
                "metadata": {"labels": {"app": "ca"}},
                "spec": {"containers": [container]},
            },
        },
        "status": {"readyReplicas": ready},
    }


def static_pod() -> dict[str, Any]:
    container = {
        "name": "ca",
        "image": "registry.test/ca:1",
        "command": ["ca", "--cloud-provider=exoscale"],
    }
    return {
        "kind": "Pod",
        "metadata": {"name": "ca-node", "namespace": "kube-system"},
        "spec": {"containers": [container], "nodeName": "a"},
        "status": {"phase": "Running"},
    }


DATA: dict[str, Any] = {"f:data": {".": {}, "f:status": {}}}


def status(
    *managers: str, age: float = 10, others: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """The status ConfigMap. managers: who has written its text; others: further
    entries of managedFields."""
    written = format_time(NOW - age).replace("T", " ").replace("Z", ".123456789 +0000 UTC")
    owned = [
        {"manager": each, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": DATA}
        for each in managers
    ]
    return {
        "kind": "ConfigMap",
        "metadata": {
            "name": "cluster-autoscaler-status",
            "namespace": "kube-system",
            "annotations": {"cluster-autoscaler.kubernetes.io/last-updated": written},
            "managedFields": [*owned, *others],
        },
    }


LABELLED: dict[str, Any] = {"f:metadata": {"f:labels": {"f:kustomize.toolkit.fluxcd.io/name": {}}}}
FLUX = {
    "manager": "kustomize-controller",
    "operation": "Apply",
    "fieldsType": "FieldsV1",
    "fieldsV1": LABELLED,
}
EMPTY = {**FLUX, "fieldsV1": {**LABELLED, "f:data": {}}}


@each_row(
    "objects, expected",
    [
        ([lease()], {"DR07 error"}),
        ([lease(), deployment()], {"DR07 error"}),
        ([deployment(ready=0)], set()),
        ([lease(age=61)], set()),
        ([lease(holder="")], set()),
        ([static_pod()], {"DR07 error"}),
        ([lease("x"), deployment("--leader-elect-resource-name=x")], {"DR07 error"}),
        ([lease("x")], set()),
        ([lease("karpenter-leader-election")], {"DR07 error"}),
        ([deployment(image="registry.test/web:1")], set()),
        ([deployment("--cloud-provider=external", image="registry.test/other:1")], set()),
        ([deployment("--cloud-provider", "external", image="registry.test/other:1")], set()),
        (
            [
                deployment(
                    "--cloud-provider=openstack",
                    image="registry.test/openstack-cloud-controller-manager:1",
                )
            ],
            set(),
        ),
        (
            [
                deployment(
                    "--cloud-provider=aws", image="registry.test/kube-controller-manager:v1.30.0"
                )
            ],
            set(),
        ),
        ([deployment("--cloud-provider", "aws", image="registry.test/own:1")], {"DR07 error"}),
        ([deployment(image="registry.test/outscaler-cluster-autoscaler:1")], set()),
    ],
)
def test_DOC_7_DOC_8_an_autoscaler_at_work_is_found(
    objects: list[dict[str, Any]], expected: set[str]
) -> None:
    with cluster(objects) as (_, kube):
        assert set(told(check_activity, context(kube, ACTIVE))) == expected


def test_another_autoscaler_is_no_error_in_shadow() -> None:
    with cluster([lease(), deployment()]) as (_, kube):
        assert set(told(check_activity, context(kube, SHADOW))) == {"DR07 info"}


def test_an_autoscaler_of_other_groups_is_no_error() -> None:
    objects = [
        lease(),
        deployment("--cloud-provider=exoscale", "--nodes=1:3:batch"),
        node("a", "g"),
    ]
    with cluster(objects) as (_, kube):
        given = context(kube, ACTIVE)
        other = context(kube, ACTIVE, snapshot=grouped(given.required_snapshot, "web"))
        same = context(kube, ACTIVE, snapshot=grouped(given.required_snapshot, "batch"))
    with cluster(objects) as (_, kube):
        assert set(told(check_activity, context(kube, ACTIVE, snapshot=other.snapshot))) == {
            "DR07 info"
        }
        assert set(told(check_activity, context(kube, ACTIVE, snapshot=same.snapshot))) == {
            "DR07 error"
        }


def test_workloads_that_may_not_be_read_are_unknown_and_found_as_a_person() -> None:
    with cluster([deployment()], rules=rules_of("rbac-workload.yaml")) as (server, kube):
        assert "DR07 unknown" in told(check_activity, context(kube, ACTIVE))
        assert set(told(check_activity, context(kube, ACTIVE, person=client(server, "admin")))) == {
            "DR07 error"
        }


@each_row(
    "written, expected",
    [
        (status("outscaler"), []),
        (status("cluster-autoscaler"), ["DR07 error"]),
        (status("cluster-autoscaler", "outscaler"), ["DR08 warn"]),
        (status("cluster-autoscaler", "outscaler", age=600), []),
        (status("kubectl-client-side-apply", "outscaler"), []),
        (status("outscaler", others=[FLUX]), []),
        (status("outscaler", others=[EMPTY]), []),
        (status("outscaler", others=[{"manager": "flux"}]), []),
        (status("cluster-autoscaler", others=[FLUX]), ["DR07 error"]),
        (status(others=[FLUX]), []),
        (status("before-first-apply", others=[FLUX]), []),
        (status("before-first-apply", "outscaler", others=[FLUX]), []),
        (status("before-first-apply", "cluster-autoscaler", others=[FLUX]), ["DR07 error"]),
    ],
)
def test_DOC_9_the_status_says_who_writes_it(written: dict[str, Any], expected: list[str]) -> None:
    with cluster([written]) as (_, kube):
        assert told(check_status, context(kube, ACTIVE)) == expected


def tainted(name: str, key: str, operation: str = "") -> dict[str, Any]:
    made = node(name, "g")
    made["spec"]["taints"] = [{"key": key, "value": "1799999000", "effect": "NoSchedule"}]
    if operation:
        made["metadata"]["annotations"] = {OPERATION_ANNOTATION: operation}
    return made


def test_DOC_10_traces_of_another_autoscaler_are_told() -> None:
    with cluster([tainted("a", DELETION_CANDIDATE)]) as (_, kube):
        assert told(check_traces, context(kube, SHADOW)) == ["DR07 info"]
        assert "outscaler uninstall" in next(iter(check_traces(context(kube, SHADOW)))).fix
    with cluster([tainted("a", TO_BE_DELETED), tainted("b", TO_BE_DELETED, "op-1")]) as (_, kube):
        [finding] = check_traces(context(kube, ACTIVE))
        assert finding.evidence == {"nodes": ["a"]}
    with cluster([tainted("a", "karpenter.sh/disrupted")]) as (_, kube):
        assert told(check_traces, context(kube, ACTIVE)) == ["DR07 warn"]


def test_DOC_11_karpenter_counts_by_its_nodes() -> None:
    own = {"karpenter.sh/nodepool": "x", "karpenter.sh/registered": "true"}
    with cluster([node("a", "g", **own), node("b", "g")]) as (_, kube):
        given = context(kube, ACTIVE)
        assert told(check_traces, given) == ["DR09 warn"]
        assert told(
            check_traces, context(kube, ACTIVE, snapshot=grouped(given.required_snapshot))
        ) == ["DR07 error"]


def test_a_label_that_workloads_select_by_is_no_karpenter() -> None:
    """Groups get it when workloads move over from Karpenter."""
    with cluster([node("a", "g", **{"karpenter.sh/nodepool": "x"})]) as (_, kube):
        given = context(kube, ACTIVE)
        assert (
            told(check_traces, context(kube, ACTIVE, snapshot=grouped(given.required_snapshot)))
            == []
        )


def test_the_field_manager_is_the_beginning_of_the_user_agent() -> None:
    assert AGENT.partition("/")[0] == OWN_MANAGER


@each_row(
    "owner, fix",
    [
        ({}, "kubectl -n kube-system delete pod ca-node"),
        (
            {"kind": "Node", "name": "a"},
            "remove the manifest of the static Pod kube-system/ca-node from node a",
        ),
        (
            {"kind": "DaemonSet", "name": "ca"},
            "stop DaemonSet kube-system/ca, which runs Pod kube-system/ca-node",
        ),
        ({"kind": "Job", "name": "a\nb"}, "kubectl -n kube-system delete pod ca-node"),
    ],
    ids=["bare", "static", "owned", "named as nothing in Kubernetes"],
)
def test_fix_for_a_pod_of_another_autoscaler_names_no_deployment(
    owner: dict[str, str], fix: str
) -> None:
    made = static_pod()
    if owner:
        made["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "uid": "u", **owner}]
    with cluster([made]) as (_, kube):
        findings = list(check_activity(context(kube, ACTIVE)))
    assert [each.fix for each in findings if each.id == "DR07"] == [fix]


CLUSTER_API = msgspec.structs.replace(SHADOW, providers={"clusterapi": {}})
STARTING = "node.cluster.x-k8s.io/uninitialized"
CAPI = "--cloud-provider=clusterapi"
HINT = f"--startup-taint={STARTING}"


def container_of(made: dict[str, Any]) -> dict[str, Any]:
    return dict(made["spec"]["template"]["spec"]["containers"][0])


def with_words(
    command: Sequence[str], args: Sequence[str] | None = None, **fields: Any
) -> dict[str, Any]:
    """The Deployment with that command and args."""
    made = deployment(**fields)
    container = (
        container_of(made)
        | {"command": list(command)}
        | ({} if args is None else {"args": list(args)})
    )
    made["spec"]["template"]["spec"]["containers"] = [container]
    return made


def startup_taint_fixes(
    policy: Policy, workload: dict[str, Any], *others: dict[str, Any], **fields: Any
) -> list[tuple[str, str]]:
    """(severity, fix) of each finding about a startup taint."""
    with cluster([workload, *others]) as (_, kube):
        findings = list(check_activity(context(kube, policy, **fields)))
    return [
        (str(result.severity), result.fix)
        for result in findings
        if "startup taint" in result.message
    ]


@each_row(
    "workload, is_told",
    [
        (deployment(CAPI), True),
        (deployment("--cloud-provider", "clusterapi"), True),
        (deployment(), True),  # the provider is the policy's
        (deployment("--cloud-provider=$(PROVIDER)"), True),
        (deployment(CAPI, "--startup-taint=example.com/starting"), True),
        (deployment(CAPI, f"{HINT},example.com/starting"), True),  # one name to it
        (deployment(CAPI, f"--status-taint={STARTING}"), True),  # its node counts as ready
        (deployment(CAPI, f"--startup-taint={STARTING}=:NoSchedule"), True),
        (with_words(["/cluster-autoscaler"], [CAPI, "--v=4"]), True),
        (with_words(["sh", "-c", f"./cluster-autoscaler {CAPI} --v=4 2>&1"]), True),
        (with_words([], [CAPI]), True),
        (with_words(["/run"], [CAPI], image="registry.test/own:1"), True),
        (
            with_words(["/run", "--cloud-provider"], ["clusterapi"], image="registry.test/own:1"),
            True,
        ),
        (with_words(["/run"], ["--cloud-provider=aws"], image="registry.test/own:1"), False),
        (with_words(["sh", "-c", "$COMMAND"]), False),
        (with_words(["/start.sh"]), False),
        (with_words(["sh", "-c", f"cluster-autoscaler {CAPI}; cluster-autoscaler {CAPI}"]), False),
        (deployment(CAPI, HINT), False),
        (deployment(CAPI, "--startup-taint=example.com/starting", HINT), False),
        (deployment(CAPI, "--startup-taint", STARTING), False),
        (deployment(CAPI, f"--startup_taint={STARTING}"), False),
        (deployment(CAPI, f"--ignore-taint={STARTING}"), False),
        (deployment(CAPI, "--startup-taint-prefix=node.cluster.x-k8s.io/"), False),
        (deployment(CAPI, "--startup-taint=$(TAINT)"), False),  # what it names is not known
        (with_words(["sh", "-c", f"./cluster-autoscaler {CAPI} {HINT}"]), False),
        (with_words(["sh", "-c", f'./cluster-autoscaler {CAPI} --startup-taint="$TAINT"']), False),
        (with_words(["./cluster-autoscaler"], [CAPI] * 6000), False),  # more words than are read
        (with_words(["docker", "run", "cluster-autoscaler", CAPI]), False),
        # it does not start
        (with_words(["./cluster-autoscaler"], [CAPI, "--startup-taint"]), False),
        (deployment("--cloud-provider=aws"), False),
        (deployment(CAPI, ready=0), False),
        (with_words(["/escalator"], ["--nodes=1:3:a"], image="registry.test/escalator:1"), False),
    ],
)
def test_autoscaler_that_lacks_the_startup_taint_of_cluster_api_is_warned(
    workload: dict[str, Any], is_told: bool
) -> None:
    fixes = startup_taint_fixes(CLUSTER_API, workload)
    assert [severity for severity, _ in fixes] == (["warn"] if is_told else [])
    assert all(
        HINT in fix and "Deployment kube-system/cluster-autoscaler" in fix for _, fix in fixes
    )


def test_missing_startup_taint_is_told_beside_a_lease_and_is_no_error() -> None:
    for policy in (ACTIVE, SHADOW):
        assert [
            severity for severity, _ in startup_taint_fixes(policy, deployment(CAPI), lease())
        ] == ["warn"]


@each_row(
    "taint, options, flags, hints",
    [
        ({"key": STARTING, "effect": "NoSchedule"}, {}, (), (HINT,)),
        ({"key": STARTING, "effect": "PreferNoSchedule"}, {}, (), ()),
        ({"key": STARTING, "effect": "NoSchedule"}, {}, (HINT,), ()),
        (
            {"key": "cni/off", "effect": "NoExecute"},
            {"startup_taint": ("cni/off",)},
            (),
            ("--startup-taint=cni/off",),
        ),
        ({"key": "cni/off", "effect": "NoSchedule"}, {}, (), ()),
        (
            {"key": "cni/off", "effect": "NoSchedule"},
            {"startup_taint": ("cni/off",)},
            ("--ignore-taint=cni/off",),
            (),
        ),
        (
            {"key": "startup-taint.cluster-autoscaler.kubernetes.io/x", "effect": "NoSchedule"},
            {},
            (),
            (),
        ),
    ],
)
def test_startup_taints_that_nodes_have_are_compared_with_those_it_knows(
    taint: dict[str, str], options: dict[str, Any], flags: tuple[str, ...], hints: tuple[str, ...]
) -> None:
    new_node = node("a", "g")
    new_node["spec"]["taints"] = [taint]
    workload = deployment("--cloud-provider=aws", *flags)
    fixes = startup_taint_fixes(with_options(SHADOW, **options), workload, new_node)
    assert [fix.partition(" ")[2].partition(" ")[0] for _, fix in fixes] == list(hints)


def test_release_without_the_flag_startup_taint_is_given_the_older_one() -> None:
    workload = deployment(CAPI, image="registry.test/cluster-autoscaler:v1.28.2")
    [(_, fix)] = startup_taint_fixes(CLUSTER_API, workload)
    assert f"--ignore-taint={STARTING}" in fix


def test_autoscaler_of_other_groups_is_given_no_startup_taint() -> None:
    with cluster([node("a", "g")]) as (_, kube):
        given = grouped(context(kube, CLUSTER_API).required_snapshot, "web")
    workload = deployment(CAPI, "--nodes=1:3:batch")
    assert startup_taint_fixes(CLUSTER_API, workload, snapshot=given) == []
