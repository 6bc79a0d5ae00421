"""`outscaler manifests` prints what stands in a cluster; no message names a file of the
repository.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from chalicelib import DOCS
from chalicelib.cli.commands import manifests
from chalicelib.cli.main import main
from tests.source_trees import ROOT, trees
from tests.unit.cli.test_printed_commands import texts

Said = pytest.CaptureFixture[str]
FOLDER = ROOT / "infra/kubernetes"
PATHS = re.compile(r"(?<![\w/.])(?:docs|infra/kubernetes)/\S+")


@pytest.mark.parametrize("name", list(manifests.FILES))
def test_manifest_is_printed_as_its_file_has_it(name: str, capsys: Said) -> None:
    assert main(["manifests", name]) == 0
    assert capsys.readouterr().out == (FOLDER / manifests.FILES[name]).read_text()


def test_every_manifest_of_the_repository_has_a_name() -> None:
    applied = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert applied == set(manifests.FILES.values())


def test_several_manifests_are_one_stream_for_kubectl(capsys: Said) -> None:
    assert main(["manifests", "rbac", "token", "rbac"]) == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)]
    assert kinds.count("Secret") == 1
    assert kinds[-1] == "Secret"
    assert main(["manifests", "rbac", "token", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["kind"], [item["kind"] for item in listed["items"]]) == ("List", kinds)


def test_wheel_s_folder_of_manifests_comes_first(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(FOLDER, tmp_path / "wheel")
    (tmp_path / "wheel" / "token-secret.yaml").write_text("kind: OfTheWheel\n")
    monkeypatch.setattr(manifests, "FOLDERS", (tmp_path / "wheel", FOLDER))
    assert main(["manifests", "token"]) == 0
    assert capsys.readouterr().out == "kind: OfTheWheel\n"
    monkeypatch.setattr(manifests, "FOLDERS", (tmp_path / "none",))
    assert main(["manifests", "token"]) == 2
    assert "this installation has no token-secret.yaml" in capsys.readouterr().err


def test_messages_name_pages_by_address_and_manifests_by_their_command() -> None:
    modules, named = dict(trees("chalicelib")), []
    for path, tree in modules.items():
        for line, text in texts(tree):
            named += [f"{path}:{line}: {hit[0]}" for hit in PATHS.finditer(text)]
    assert len(modules) > 300
    assert named == []


@pytest.mark.parametrize(
    ("text", "count"),
    [("see docs/policy.md", 1), ("apply infra/kubernetes/x.yaml", 1), (f"see {DOCS}/policy.md", 0)],
)
def test_path_in_a_message_is_noticed(text: str, count: int) -> None:
    assert len(PATHS.findall(text)) == count
