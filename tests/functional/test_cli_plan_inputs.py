"""Further inputs of `outscaler plan`: a policy, a memory, instants. Each is
used, or rejected by name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from chalicelib.cluster.listed_resources import RESOURCES
from chalicelib.model.timestamps import parse_time
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.kube.store import ObjectStore
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.contract.kube_api.cluster import running
from tests.unit.policy.policy_documents import GOOD, with_groups

ROOT = Path(__file__).resolve().parents[2]
Said = pytest.CaptureFixture[str]
NOW = "2026-11-21T07:20:54Z"


def _node(name: str) -> dict[str, Any]:
    offers = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": f"example://a/{name}"},
        "status": {
            "allocatable": offers,
            "capacity": offers,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOW}],
        },
    }


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved cluster: group a (0 to 3) has one empty node, group b (0 to 5) none."""
    folder = tmp_path / "saved"
    folder.mkdir()
    for kind, items in (("nodes", [_node("a-0")]), ("pods", []), ("workloads", []), ("pdbs", [])):
        (folder / f"{kind}.json").write_text(json.dumps({"kind": "List", "items": items}))
    groups = [
        {"id": "a", "min": 0, "max": 3, "size": 1, "template": _node("t")},
        {"id": "b", "min": 0, "max": 5, "size": 0, "template": _node("t")},
    ]
    (folder / "manifest.json").write_text(json.dumps({"nodeGroups": groups}))
    (tmp_path / "none.json").write_text('{"nodeGroups": []}')
    (folder / "captured-at").write_text(NOW + "\n")
    return folder


def run(capsys: Said, *arguments: str | Path) -> tuple[int, str, list[str]]:
    """Exit code, standard output, lines of standard error."""
    capsys.readouterr()
    code = main(["plan", *map(str, arguments), "-o", "json"])
    said = capsys.readouterr()
    return code, said.out, said.err.splitlines()


def refused(capsys: Said, *arguments: str | Path) -> str:
    """The single line of a rejection."""
    code, out, (line,) = run(capsys, *arguments)
    assert (code, out) == (2, "")
    return line


# -- the policy ------------------------------------------------------------------------------------


def policy(folder: Path, *groups: str, mode: str = "active") -> Path:
    path = folder / "policy.yaml"
    path.write_text(with_groups(*groups).replace("mode: active", f"mode: {mode}"))
    return path


def test_policy_bounds_apply_to_snapshot_groups_of_any_provider(
    saved: Path, tmp_path: Path, capsys: Said
) -> None:
    file = policy(
        tmp_path,
        "{provider: clusterapi, id: a, min: 1, max: 9}",
        "{provider: clusterapi, id: b, max: 4}",
    )
    code, out, _ = run(
        capsys, "--snapshot", saved, "--policy", file, "--assume-unneeded-for", "11m"
    )
    answer = json.loads(out)
    assert code == 0
    assert {g["group"]: (g["min"], g["max"]) for g in answer["groups"]} == {
        "a": (1, 9),
        "b": (0, 4),
    }
    assert answer["scaleDowns"] == [], "the policy's minimum keeps the node"
    without = json.loads(run(capsys, "--snapshot", saved, "--assume-unneeded-for", "11m")[1])
    assert [removal["node"] for removal in without["scaleDowns"]] == ["a-0"]


def test_group_missing_from_the_snapshot_is_reported(
    saved: Path, tmp_path: Path, capsys: Said
) -> None:
    file = policy(tmp_path, "{provider: clusterapi, id: MachineDeployment/d/x, max: 9}")
    code, _, reported = run(capsys, "--snapshot", saved, "--policy", file)
    assert code == 0
    (line,) = reported
    assert line == (
        "warning: policy.yaml: spec.nodeGroups: MachineDeployment/d/x is not a group of this "
        "snapshot; "
        "its groups are a, b"
    )


def test_policy_bounds_that_contradict_the_snapshot_are_rejected(
    saved: Path, tmp_path: Path, capsys: Said
) -> None:
    file = policy(tmp_path, "{provider: clusterapi, id: MachineDeployment/d/a, max: 9}")
    file.write_text(file.read_text().replace("MachineDeployment/d/a, max: 9", "a, min: 5"))
    code, out, reported = run(capsys, "--snapshot", saved, "--policy", file)
    assert (code, out) == (2, "")
    assert (
        reported[-1]
        == "policy.yaml: spec.nodeGroups: a: max 3 of the snapshot is below min 5; give max as well"
    )


def test_mode_off_is_still_planned_and_reported(saved: Path, tmp_path: Path, capsys: Said) -> None:
    code, _, reported = run(capsys, "--snapshot", saved, "--policy", policy(tmp_path, mode="off"))
    assert (code, reported) == (
        0,
        ["warning: policy.yaml: mode is off: nothing would be done; planned all the same"],
    )


# -- the memory ------------------------------------------------------------------------------------


def test_saved_memory_is_read_again(saved: Path, tmp_path: Path, capsys: Said) -> None:
    kept = tmp_path / "memory.json"
    assert run(capsys, "--snapshot", saved, "--save-memory", kept)[0] == 0
    document = json.loads(kept.read_text())
    assert document["kind"] == "outscaler/memory"
    assert "a-0" in document["memory"]["nodes"]
    later = ("--snapshot", saved, "--now", "2026-11-21T07:31:44Z")
    removals = [json.loads(run(capsys, *later, "--memory", kept)[1])["scaleDowns"]]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(document["memory"]))
    removals.append(json.loads(run(capsys, *later, "--memory", bare)[1])["scaleDowns"])
    assert [[removal["node"] for removal in each] for each in removals] == [["a-0"], ["a-0"]]


def test_empty_memory_file_is_valid(saved: Path, tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "m").write_text('{"kind": "outscaler/memory", "memory": {}}')
    assert run(capsys, "--snapshot", saved, "--memory", tmp_path / "m")[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "null",
        "{",
        '{"kind": "List", "items": []}',
        '{"kind": "outscaler/memory"}',
        '{"nodeGroups": []}',
        '{"nodes": {}, "apiVersion": "v1"}',
        '{"kind": "outscaler/memory", "memory": {"nodes": 3}}',
        '{"nodes": []}',
        '{"kind": "outscaler/memory", "memory": {}, "more": 1}',
        '{"kind": "outscaler/memory", "memory": {"node": {}}}',
        (
            '{"kind": "outscaler/memory", "memory": {"groups": {"a": {"target": '
            "9223372036854775808}}}}"
        ),
        "\udcff",
    ],
)
def test_file_that_is_not_a_saved_memory_is_rejected(
    text: str, saved: Path, tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "m.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    line = refused(capsys, "--snapshot", saved, "--memory", tmp_path / "m.json")
    assert line.startswith(f"{tmp_path / 'm.json'}: is not a saved memory")
    assert "--save-memory" in line


# -- instants, times, sources ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--assume-unneeded-for", "11x"],
            "--assume-unneeded-for: '11x' is not a duration; write it as Go does",
        ),
        (["--assume-unneeded-for", ""], "--assume-unneeded-for: '' is not a duration"),
        (
            ["--assume-unneeded-for=-11m"],
            "--assume-unneeded-for: '-11m' is negative; write it as Go does: 11m",
        ),
        (["--now", ""], "--now: '' is not a time; write RFC 3339"),
        (
            ["--context", "prod"],
            "--context: belongs to --kubeconfig, and --snapshot is given; take it out",
        ),
        (["--context", ""], "--context: belongs to --kubeconfig"),
    ],
)
def test_impossible_option_is_named(
    arguments: list[str], says: str, saved: Path, capsys: Said
) -> None:
    assert refused(capsys, "--snapshot", saved, *arguments).startswith(says)


@pytest.mark.parametrize("content", [b"noon", b"", b"\xff\xfe2"])
def test_unreadable_instant_names_its_file(content: bytes, saved: Path, capsys: Said) -> None:
    (saved / "captured-at").write_bytes(content)
    line = refused(capsys, "--snapshot", saved)
    assert line.startswith(f"{saved / 'captured-at'}: ")
    assert "RFC 3339" in line


# -- objects besides nodes and pods ----------------------------------------------------------------


def pending(saved: Path, memory: str = "1Gi") -> list[dict[str, Any]]:
    """Adds a pod to the saved cluster's node and a pending one with two cores; returns both."""
    asks = {"cpu": "2", "memory": memory}
    pod: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {"name": "waits", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": asks}}]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }
    busy = {
        "kind": "Pod",
        "metadata": {"name": "runs", "namespace": "default"},
        "status": {"phase": "Running"},
        "spec": {
            "nodeName": "a-0",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    (saved / "pods.json").write_text(json.dumps({"kind": "List", "items": [busy, pod]}))
    return [busy, pod]


def grown(answer: str) -> list[str]:
    return [entry["group"] for entry in json.loads(answer)["scaleUps"]]


PRIORITIES = "cluster-autoscaler-priority-expander"


@pytest.mark.parametrize("reported", ["a", "b"])
@pytest.mark.parametrize("namespace", ["kube-system", "scaling"])
def test_priority_expander_reads_a_saved_configmap(
    saved: Path, capsys: Said, reported: str, namespace: str
) -> None:
    pending(saved)
    maps = [
        {
            "kind": "ConfigMap",
            "metadata": {"name": PRIORITIES, "namespace": place},
            "data": {"priorities": f'10: [".*"]\n20: ["^{group}$"]\n'},
        }
        for place, group in ((namespace, reported), ("elsewhere", "b" if reported == "a" else "a"))
    ]
    (saved / "configmaps.json").write_text(json.dumps({"kind": "List", "items": maps}))
    code, out, _ = run(
        capsys,
        "--snapshot",
        saved,
        "--option",
        "expander=priority",
        "--option",
        f"namespace={namespace}",
    )
    assert (code, grown(out)) == (0, [reported])


def test_unreadable_priorities_are_reported_with_their_line(saved: Path, capsys: Said) -> None:
    pending(saved)
    (saved / "configmaps.json").write_text(
        json.dumps(
            {
                "kind": "List",
                "items": [
                    {
                        "kind": "ConfigMap",
                        "metadata": {"name": PRIORITIES, "namespace": "kube-system"},
                        "data": {"priorities": "10: [a]\nten: [b]"},
                    }
                ],
            }
        )
    )
    code, out, _ = run(capsys, "--snapshot", saved, "--option", "expander=priority")
    assert code == 0
    assert "priorities:2: the priority 'ten' is not a whole number" in out


@pytest.mark.parametrize("reported", ["a", "b"])
def test_priority_expander_reads_a_live_configmap(
    saved: Path, tmp_path: Path, capsys: Said, reported: str
) -> None:
    store = ObjectStore(lambda: parse_time(NOW) - 60.0)
    store.create("nodes", _node("a-0"))
    store.create("namespaces", {"metadata": {"name": "scaling"}})
    for pod in pending(saved):
        store.create("pods", pod)
    store.create(
        "configmaps",
        {
            "metadata": {"name": PRIORITIES, "namespace": "scaling"},
            "data": {"priorities": f'10: [".*"]\n20: ["^{reported}$"]\n'},
        },
    )
    with running(store) as server:
        file = kubeconfig(tmp_path, server.url, "token-of-admin")
        code, out, told_besides = run(
            capsys,
            "--kubeconfig",
            file,
            "--node-groups",
            saved / "manifest.json",
            "--now",
            NOW,
            "--option",
            "expander=priority",
            "--option",
            "namespace=scaling",
        )
    assert code == 0, told_besides
    assert grown(out) == [reported]


@pytest.mark.parametrize(
    ("memory", "learnt", "grows"),
    [
        pytest.param("3996Mi", None, True, id="what-a-kubelet-leaves"),
        pytest.param("3997Mi", None, False, id="what-it-keeps-for-itself"),
        pytest.param("3Gi", "3Gi", True, id="what-the-groups-kubelets-left"),
        pytest.param("3996Mi", "3Gi", False, id="what-the-groups-kubelets-kept"),
    ],
)
def test_allocatable_of_a_new_node_subtracts_the_kubelets_reservation(
    saved: Path, tmp_path: Path, capsys: Said, memory: str, learnt: str | None, grows: bool
) -> None:
    """For a template without allocatable, the kubelet's reservation is subtracted as far as it is
    known from a former node of the group."""
    pending(saved, memory)
    template = _node("t")
    del template["status"]["allocatable"]
    (saved / "manifest.json").write_text(
        json.dumps(
            {
                "nodeGroups": [
                    {"id": "a", "min": 0, "max": 1, "size": 1, "template": _node("t")},
                    {"id": "b", "min": 0, "max": 5, "size": 0, "template": template},
                ]
            }
        )
    )
    known: list[str | Path] = ["--memory", tmp_path / "memory.json"] if learnt else []
    had = {"cpu": 2000, "memory": 4 * 2**30, "pods": 110}
    (tmp_path / "memory.json").write_text(
        json.dumps(
            {
                "kind": "outscaler/memory",
                "memory": {
                    "templates": {
                        "b": {
                            "learnt_at": 1.0,
                            "node": {
                                "name": "",
                                "labels": {},
                                "capacity": had,
                                "allocatable": {**had, "memory": 3 * 2**30},
                            },
                        }
                    }
                },
            }
        )
    )
    code, out, reported = run(capsys, "--snapshot", saved, *known)
    assert (code, reported) == (0, [])
    assert grown(out) == (["b"] if grows else [])


# -- a live cluster --------------------------------------------------------------------------------


def kubeconfig(folder: Path, server: str, token: str = "t", *, insecure: bool = False) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [
                    {
                        "name": "x",
                        "cluster": {"server": server, "insecure-skip-tls-verify": insecure},
                    }
                ],
                "users": [{"name": "x", "user": {"token": token}}],
            }
        )
    )
    return path


@pytest.mark.usefixtures("saved")
def test_server_that_does_not_answer_is_named(tmp_path: Path, capsys: Said) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:9")
    line = refused(capsys, "--kubeconfig", file, "--node-groups", tmp_path / "none.json")
    why = "it refuses connections on this port; check the server of kubeconfig file"
    assert f"the connection to 127.0.0.1:9 failed: {why}" in line


@pytest.mark.usefixtures("saved")
def test_server_whose_name_is_unknown_is_named(tmp_path: Path, capsys: Said) -> None:
    file = kubeconfig(tmp_path, "https://api.cluster.invalid:6443")
    line = refused(capsys, "--kubeconfig", file, "--node-groups", tmp_path / "none.json")
    assert "the connection to api.cluster.invalid:6443 failed: DNS does" in line


@pytest.mark.usefixtures("saved")
def test_deliberately_insecure_server_prints_no_warning(tmp_path: Path) -> None:
    """Runs as a process, because a test's own warning filters would hide what a user sees."""
    document = tmp_path / "policy.yaml"
    document.write_text(
        GOOD.replace("{kubeconfigSecret:", "{allowInsecureTls: true, kubeconfigSecret:")
    )
    # and a ConfigMap
    answers = [Reply(body={"kind": "List", "metadata": {}, "items": []})] * (len(RESOURCES) + 1)
    with HttpScript(answers, tls=CertificateAuthority("nobody").server()) as server:
        file = kubeconfig(tmp_path, server.url, insecure=True)
        options = [
            "--kubeconfig",
            str(file),
            "--policy",
            str(document),
            "--node-groups",
            str(tmp_path / "none.json"),
        ]
        done = subprocess.run(
            [sys.executable, "-W", "always", "-m", "chalicelib", "plan", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    assert (done.returncode, done.stderr) == (0, "")
