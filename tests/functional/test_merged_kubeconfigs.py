"""Commands merge the files of KUBECONFIG as kubectl does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.kubeconfig_files import kubeconfig_of, read_kubeconfig
from chalicelib.cli.main import main
from chalicelib.model.errors import BadInput
from tests.functional.captured_clusters import saved_objects, served
from tests.functional.saved_cluster import shop

Said = pytest.CaptureFixture[str]


def write(path: Path, document: dict[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return str(path)


def merged(*paths: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        read_kubeconfig(kubeconfig_of({"KUBECONFIG": os.pathsep.join(paths)}))
    )
    return found


def test_capture_reads_a_cluster_of_which_each_part_is_in_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    with served(tmp_path, saved_objects(shop(tmp_path / "shop"))) as (_, kubeconfig):
        whole = yaml.safe_load(kubeconfig.read_text())
        parts = [
            write(tmp_path / key, {"apiVersion": "v1", "kind": "Config", key: whole[key]})
            for key in ("clusters", "users", "contexts", "current-context")
        ]
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "missing"), *parts]))
        assert main(["capture", str(tmp_path / "capture")]) == 0
    assert (tmp_path / "capture" / "nodes.json.gz").exists()


def test_the_first_file_counts_for_a_name_and_for_the_current_context(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a", {"clusters": [{"name": "x", "cluster": {"server": "https://first.test"}}]}
    )
    second = write(
        tmp_path / "b",
        {
            "current-context": "second",
            "clusters": [
                {"name": "x", "cluster": {"server": "https://second.test"}},
                {"name": "y", "cluster": {"server": "https://y.test"}},
            ],
        },
    )
    third = write(tmp_path / "c", {"current-context": "third"})
    found = merged(first, second, third)
    assert [each["cluster"]["server"] for each in found["clusters"]] == [
        "https://first.test",
        "https://y.test",
    ]
    assert found["current-context"] == "second"


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    user = {
        "client-certificate": "pki/c.pem",
        "client-key": "/abs/k.pem",
        "exec": {"command": "./login", "args": ["a"]},
    }
    users = write(tmp_path / "one" / "users", {"users": [{"name": "u", "user": user}]})
    clusters = write(
        tmp_path / "two" / "clusters",
        {"clusters": [{"name": "c", "cluster": {"certificate-authority": "ca.pem"}}]},
    )
    found = merged(users, clusters)
    [entry] = found["users"]
    assert entry["user"]["client-certificate"] == str(tmp_path / "one" / "pki" / "c.pem")
    assert entry["user"]["client-key"] == "/abs/k.pem"
    assert entry["user"]["exec"]["command"] == str(tmp_path / "one" / "login")
    assert found["clusters"][0]["cluster"]["certificate-authority"] == str(
        tmp_path / "two" / "ca.pem"
    )


@pytest.mark.parametrize("text", ["- a list", "token: [hidden-value", "a: " + "[" * 100])
def test_a_file_that_is_no_kubeconfig_is_named_and_never_quoted(text: str, tmp_path: Path) -> None:
    good = write(tmp_path / "a", {"clusters": []})
    (tmp_path / "b").write_text(text)
    with pytest.raises(BadInput) as refused:
        merged(good, str(tmp_path / "b"))
    assert refused.value.place == f"kubeconfig file {tmp_path / 'b'}"
    assert "hidden-value" not in str(refused.value)
