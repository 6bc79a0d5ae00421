"""What-if changes of `outscaler plan`: more pods, fewer nodes, other bounds. They are listed at the
top, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from tests.contract.kube_api.cluster import running
from tests.functional.saved_cluster import pod, shop

Said = pytest.CaptureFixture[str]
Plan = Callable[..., dict[str, Any]]


def deployment(
    name: str = "front", replicas: int | None = 3, cpu: str = "1500m", **spec: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [
                        {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
                    ],
                    **spec,
                },
            },
        },
    }
    if replicas is not None:
        made["spec"]["replicas"] = replicas
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shop(tmp_path / "shop")


@pytest.fixture
def plan(folder: Path, capsys: Said) -> Plan:
    """The JSON of the plan, with the warnings under `warned`."""

    def run(*args: str | Path) -> dict[str, Any]:
        assert main(["plan", "--snapshot", str(folder), *map(str, args), "-o", "json"]) == 0
        said = capsys.readouterr()
        return {**json.loads(said.out), "warned": said.err}

    return run


def grown(answer: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {up["group"]: (up["from"], up["to"]) for up in answer["scaleUps"]}


def asked_for(answer: dict[str, Any]) -> set[str]:
    """Every pod that has a verdict as pending."""
    return {
        name
        for part in ("scaleUps", "unschedulable", "notLookedAt")
        for each in answer[part]
        for name in each["pods"]
    } | set(answer["fitsExisting"])


# -- pods from a file ------------------------------------------------------------------------------


def test_plan_without_what_if_changes_assumes_nothing(plan: Plan) -> None:
    answer = plan()
    assert answer["assumed"] == []
    assert grown(answer) == {"b": (0, 2)}


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
def test_pods_of_a_workload_are_added(
    write: Callable[[Any], str], plan: Plan, tmp_path: Path
) -> None:
    (tmp_path / "front").write_text(write(deployment()))
    answer = plan("--add-pods", tmp_path / "front")
    assert grown(answer) == {"b": (0, 5)}
    assert {f"shop/front-added-{number}" for number in (1, 2, 3)} <= asked_for(answer)
    assert answer["assumed"] == [
        "pending as well: 3 pods, shop/front-added-1 to shop/front-added-3"
    ]


def test_file_with_several_documents_lists_and_pods_is_read_and_the_rest_skipped(
    plan: Plan, tmp_path: Path
) -> None:
    text = yaml.safe_dump_all(
        [
            {"kind": "Service", "metadata": {"name": "front"}},
            deployment(replicas=1),
            {
                "kind": "List",
                "items": [pod("one", "1"), {**pod("two", "1"), "metadata": {"name": "two"}}],
            },
            None,
        ]
    )
    (tmp_path / "all.yaml").write_text(text)
    answer = plan("--add-pods", tmp_path / "all.yaml")
    assert {"shop/front-added-1", "shop/one", "default/two"} <= asked_for(answer)
    assert "Service passed over" in answer["warned"]


def test_running_or_new_pod_in_a_file_is_added_as_unschedulable(plan: Plan, tmp_path: Path) -> None:
    new = pod("late", "1500m", on="a-0")
    new["metadata"]["creationTimestamp"] = "2026-11-21T07:20:54Z"
    new["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "10m"}
    (tmp_path / "late.json").write_text(json.dumps(new))
    answer = plan("--add-pods", tmp_path / "late.json", "--option", "newPodScaleUpDelay=2m")
    assert "shop/late" in {name for up in answer["scaleUps"] for name in up["pods"]}


def test_added_pod_with_a_taken_name_gets_a_number(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "web.json").write_text(json.dumps(pod("web-0", "1500m")))
    assert plan("--add-pods", tmp_path / "web.json")["assumed"] == [
        "pending as well: shop/web-0-added-1"
    ]


def test_added_gated_and_daemonset_pods_are_treated_as_usual(plan: Plan, tmp_path: Path) -> None:
    daemon = {**deployment("agent", None), "kind": "DaemonSet"}
    gated = deployment("held", 1, schedulingGates=[{"name": "quota"}])
    (tmp_path / "f.yaml").write_text(yaml.safe_dump_all([daemon, gated]))
    answer = plan("--add-pods", tmp_path / "f.yaml")
    why = {entry["code"]: entry["pods"] for entry in answer["notLookedAt"]}
    assert why["DaemonSetPod"] == ["shop/agent-added-1"]
    assert "shop/held-added-1" in [
        name
        for entry in answer["notLookedAt"]
        if entry["code"] == "SchedulingGated"
        for name in entry["pods"]
    ]


def test_priority_class_of_an_added_pod_has_the_value_used_in_the_cluster(
    folder: Path, plan: Plan, tmp_path: Path
) -> None:
    pods = json.loads((folder / "pods.json").read_text())
    pods["items"].append(pod("spare", "1", priorityClassName="spare", priority=-20))
    (folder / "pods.json").write_text(json.dumps(pods))
    for name in ("spare", "unheard-of"):
        (tmp_path / f"{name}.json").write_text(
            json.dumps(deployment(name, 1, priorityClassName=name))
        )
    ignored = {
        name: entry["code"]
        for entry in plan("--add-pods", tmp_path / "spare.json")["notLookedAt"]
        for name in entry["pods"]
    }
    assert ignored["shop/spare-added-1"] == "Expendable"
    assert (
        "no pod of the cluster has priority class unheard-of"
        in plan("--add-pods", tmp_path / "unheard-of.json")["warned"]
    )


# -- several equal pods ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["2\N{MULTIPLICATION SIGN}{}", "2*{}", "2x{}", "2 x {}"])
def test_n_pods_like_the_one_in_a_file_are_added(form: str, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "front.yaml").write_text(yaml.safe_dump(deployment(replicas=50)))
    answer = plan("--add-pods", form.format(tmp_path / "front.yaml"))
    assert grown(answer) == {"b": (0, 4)}, "two of them, whatever its replicas"


@pytest.mark.parametrize(
    ("like", "name"),
    [
        ("shop/api-0", "shop/api-0-added-1"),
        ("shop/api", "shop/api-added-1"),
        ("shop/api-1", "shop/api-1-added-1"),
        ("api", "shop/api-added-1"),
    ],
)
def test_n_pods_like_a_cluster_pod_or_workload_are_added(like: str, name: str, plan: Plan) -> None:
    answer = plan("--add-pods", f"3x{like}")
    assert grown(answer) == {"b": (0, 5)}
    assert name in asked_for(answer)


def test_copy_of_a_running_pod_drops_zone_labels_added_by_binding(plan: Plan) -> None:
    """The API server copies the node's zone and region onto a bound pod; a new pod has neither."""
    from_cluster = plan("--add-pods", "1xshop/api-0")
    verdicts = {name for up in from_cluster["scaleUps"] for name in up["pods"]}
    assert "shop/api-0-added-1" in verdicts


def test_claims_shared_by_copied_pods_are_reported(folder: Path, plan: Plan) -> None:
    pods = json.loads((folder / "pods.json").read_text())
    pods["items"].append(
        pod(
            "disk",
            "1",
            on="a-1",
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        )
    )
    (folder / "pods.json").write_text(json.dumps(pods))
    assert "its copies share its claims: data" in plan("--add-pods", "2xshop/disk")["warned"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("nothing.yaml", "--add-pods: there is no file nothing.yaml; write FILE, or N"),
        (
            "3xshop/appi",
            "--add-pods: no file, pod or workload with pods is called 'shop/appi'; did you mean",
        ),
        ("0xshop/api", "--add-pods: 0 pods are not to be added; write a number from 1 to"),
        ("2xstatic", "--add-pods static: is a static pod of its node"),
        ("{dir}/empty.yaml", "holds no pods"),
        ("{dir}/service.yaml", "holds no pods, only Service; give Pods"),
        ("{dir}/text.yaml", "is neither JSON nor YAML"),
        ("{dir}/bad.yaml", "bad.yaml: Deployment front: cpu: 'lots' is not a Kubernetes quantity"),
        ("{dir}/half.yaml", "half.yaml: Deployment front: 2.5 is no number of replicas"),
        ("{dir}/bare.yaml", "bare.yaml: Pod p: has no spec.containers"),
        ("2x{dir}/two.yaml", "holds 2 pods or workloads; N"),
    ],
)
def test_what_if_pods_that_cannot_be_added_are_a_one_line_error(
    value: str, says: str, folder: Path, tmp_path: Path, capsys: Said
) -> None:
    half = deployment()
    half["spec"]["replicas"] = 2.5
    texts = {
        "empty": "",
        "text": "a: [",
        "service": "kind: Service",
        "bad": yaml.safe_dump(deployment(cpu="lots")),
        "half": yaml.safe_dump(half),
        "bare": "kind: Pod\nmetadata: {name: p}",
        "two": yaml.safe_dump_all([deployment(), deployment("back")]),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    assert (
        main(
            ["plan", "--snapshot", str(folder), "--add-pods", value.replace("{dir}", str(tmp_path))]
        )
        == 2
    )
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    "junk",
    [
        "3",
        "[]",
        "[3]",
        "kind: Pod",
        "kind: [Pod]",
        "{kind: PodList, items: 3}",
        "{kind: List, items: [3, null]}",
        "{kind: Pod, metadata: [1], spec: {containers: [{}]}, }",
        "{kind: Pod, spec: {containers: 3}}",
        "{kind: Pod, spec: {containers: [{}], tolerations: x}}",
        "{kind: Deployment, spec: {template: 3}}",
        "{kind: Deployment, metadata: {name: {a: b}}, spec: {template: {spec: {containers: [3]}}}}",
        "{kind: Pod, metadata: {name: p, labels: {a: true}}, spec: {containers: [{}]}}",
        "{kind: Pod, metadata: {name: p, ownerReferences: 3}, spec: {containers: [{}]}}",
        "{kind: Pod, metadata: {1: 2}, spec: {containers: [{}], 1: 2}}",
        "&a [*a]",
        "&a {kind: List, items: [*a]}",
    ],
)
def test_no_manifest_causes_an_internal_error(
    junk: str, folder: Path, tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "junk.yaml").write_text(junk)
    code = main(["plan", "--snapshot", str(folder), "--add-pods", str(tmp_path / "junk.yaml")])
    assert (code, len(capsys.readouterr().err.splitlines())) in {(0, 0), (2, 1)}


# -- fewer nodes -----------------------------------------------------------------------------------


def test_removed_node_leaves_recreated_pods_pending_and_a_smaller_group(plan: Plan) -> None:
    answer = plan("--remove-node", "a-0")
    assert answer["assumed"] == [
        (
            "node a-0 is gone, and a is smaller by one; 1 of its pods want a node again, 1 will "
            "not come back: shop/lone"
        )
    ]
    (group,) = [each for each in answer["groups"] if each["group"] == "a"]
    assert group["target"] == 1
    reported = asked_for(answer)
    assert "shop/api-0" in reported
    assert not {"shop/lone", "shop/logs-0", "shop/static"} & reported
    assert "a-0" not in {verdict["node"] for verdict in answer["unremovable"]}


def test_template_known_only_from_the_removed_node_is_kept(folder: Path, plan: Plan) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["nodeGroups"] = [{"id": "a", "min": 0, "max": 9, "size": 2}]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    answer = plan("--remove-node", "a-0", "--remove-node", "a-1")
    assert grown(answer)["a"][0] == 0
    assert grown(answer)["a"][1] > 0


# -- other bounds ----------------------------------------------------------------------------------


def test_what_if_maximum_changes_the_plan(plan: Plan) -> None:
    answer = plan("--group", "a:max=9", "--group", "b:max=0,min=0")
    assert grown(answer) == {"a": (2, 4)}
    assert answer["assumed"] == [
        "node group a has max 9 instead of 2",
        "node group b has min 0 instead of 0, max 0 instead of 5",
    ]


def test_what_if_size_above_the_present_one_makes_upcoming_nodes(plan: Plan) -> None:
    answer = plan("--group", "b:size=2")
    assert (answer["health"]["upcoming"], grown(answer)) == (2, {})
    assert {"shop/web-0", "shop/web-1"} <= set(answer["fitsExisting"])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("bb:max=3", "--group: no node group is called 'bb'; did you mean b?"),
        ("b:most=3", "--group b: 'most=3' is not a setting; write max=50, min=2 or size=5"),
        ("b:max=-1", "--group b: 'max=-1' is not a setting"),
        ("b:max=", "--group b: 'max=' is not a setting"),
        ("b", "--group: 'b' says nothing"),
        ("b:", "--group b: '' is not a setting"),
        ("b:min=7", "--group b: max 5 is below min 7; give both"),
        (
            "a:size=1",
            (
                "--group a: size 1 is below the 2 nodes that are there; say which ones are gone "
                "with --remove-node"
            ),
        ),
    ],
)
def test_impossible_what_if_bounds_are_a_one_line_error(
    value: str, says: str, folder: Path, capsys: Said
) -> None:
    assert main(["plan", "--snapshot", str(folder), "--group", value]) == 2
    assert capsys.readouterr().err.startswith(says)


def test_unknown_node_is_rejected_with_the_nearest_name(folder: Path, capsys: Said) -> None:
    assert main(["plan", "--snapshot", str(folder), "--remove-node", "a-7"]) == 2
    assert capsys.readouterr().err.startswith(
        "--remove-node: no node is called 'a-7'; did you mean a-"
    )


# -- common behaviour ------------------------------------------------------------------------------


def test_what_if_table_lists_the_assumptions_at_the_top(folder: Path, capsys: Said) -> None:
    assert main(["plan", "--snapshot", str(folder), "--group", "a:max=9"]) == 0
    assert capsys.readouterr().out.startswith(
        "What if:\n  node group a has max 9 instead of 2\n\nCluster shop at"
    )


def test_what_if_arguments_give_the_same_answer_in_any_order(plan: Plan) -> None:
    first = plan("--add-pods", "3xshop/api", "--remove-node", "a-0", "--group", "b:max=9")
    second = plan("--group", "b:max=9", "--remove-node", "a-0", "--add-pods", "3xshop/api")
    assert {**first, "timings": 0} == {**second, "timings": 0}


def test_what_if_leaves_input_files_unchanged(folder: Path, plan: Plan) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    plan("--add-pods", "3xshop/api", "--remove-node", "a-0", "--group", "b:max=9")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_if_works_on_a_live_cluster(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "front.yaml").write_text(yaml.safe_dump(deployment()))
    template = {
        "kind": "Node",
        "metadata": {"name": "t"},
        "status": {"capacity": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
    }
    (tmp_path / "groups.json").write_text(
        json.dumps({"nodeGroups": [{"id": "g", "max": 9, "template": template}]})
    )
    with running() as server:
        (tmp_path / "config").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "x",
                    "users": [{"name": "x", "user": {"token": "token-of-admin"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                    "clusters": [{"name": "x", "cluster": {"server": server.url}}],
                }
            )
        )
        code = main(
            [
                "plan",
                "--kubeconfig",
                str(tmp_path / "config"),
                "--node-groups",
                str(tmp_path / "groups.json"),
                "--add-pods",
                str(tmp_path / "front.yaml"),
                "-o",
                "json",
            ]
        )
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert answer["assumed"] == [
        "pending as well: 3 pods, shop/front-added-1 to shop/front-added-3"
    ]
    assert asked_for(answer) >= {f"shop/front-added-{number}" for number in (1, 2, 3)}


WORKERS = "MachineDeployment/east/workers"


@pytest.fixture
def long_ids(folder: Path) -> Path:
    """Group b has a long id, and two further groups have the same short name."""
    manifest = folder / "manifest.json"
    document = json.loads(manifest.read_text())
    group, other = document["nodeGroups"]
    twins = [{**other, "id": f"MachineDeployment/{place}/twin"} for place in ("east", "west")]
    groups = [group, {**other, "id": WORKERS}, *twins]
    manifest.write_text(json.dumps({"nodeGroups": groups}))
    return folder


@pytest.mark.usefixtures("long_ids")
@pytest.mark.parametrize("name", ["workers", "WORKERS", WORKERS, "MachineD…t/workers"])
def test_what_if_takes_the_short_name_of_a_group(name: str, plan: Plan) -> None:
    answer = plan("--group", f"{name}:max=9,min=1")
    assert answer["assumed"] == [
        f"node group {WORKERS} has min 1 instead of 0, max 9 instead of 5",
    ]


def test_short_name_of_several_groups_is_refused_with_them(long_ids: Path, capsys: Said) -> None:
    assert main(["plan", "--snapshot", str(long_ids), "--group", "twin:max=3"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("--group: 'twin' is 2 node groups; write one of MachineDeployment/east/")
    assert "MachineDeployment/west/twin" in line
