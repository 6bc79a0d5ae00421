"""The plugin of kubectl: its manifest follows krew's rules, and its archive
is what the manifest says.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from infra.release.assets import CHART, NO_SUM, UNRELEASED, chart, plugin, schema
from infra.release.wheel_build import repository
from tests.source_trees import ROOT

VERSION, EPOCH = "1.2.3", 1_900_000_000
PACKED, TEXT = plugin(ROOT, VERSION, EPOCH)
MANIFEST: dict[str, Any] = yaml.safe_load(TEXT)
SCRIPT = ROOT / "infra" / "krew" / "kubectl-outscaler"
_SELECTOR = ("matchLabels", "matchExpressions")
_FIELDS = {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
_OF_PLATFORM = {"uri", "sha256", "bin", "files", "selector"}


def mistakes(name: str, manifest: dict[str, Any]) -> list[str]:
    """What krew's validation of a plugin refuses:
    https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/"""
    spec = manifest.get("spec", {})
    checks = {
        "apiVersion": manifest.get("apiVersion") == "krew.googlecontainertools.github.com/v1alpha2",
        "kind": manifest.get("kind") == "Plugin",
        "name": re.fullmatch(r"[\w-]+", name, re.ASCII)
        and manifest.get("metadata", {}).get("name") == name,
        "shortDescription": re.fullmatch(r"[^\r\n]+", spec.get("shortDescription", "")),
        "version": re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.]+)?", spec.get("version", "")),
        "platforms": bool(spec.get("platforms")),
        "fields": set(spec) <= _FIELDS,
    }
    wrong = [field for field, right in checks.items() if not right]
    for platform in spec.get("platforms", ()):
        selector = platform.get("selector") or {}
        keys = [
            *selector.get("matchLabels", {}),
            *(each["key"] for each in selector.get("matchExpressions", ())),
        ]
        files = platform.get("files")
        of_platform = {
            "uri": platform.get("uri"),
            "sha256": re.fullmatch(r"[a-f0-9]{64}", platform.get("sha256", "")),
            "bin": platform.get("bin"),
            "files": files is None
            or (files and all(each.get("from") and each.get("to") for each in files)),
            "selector": keys
            and set(keys) <= {"os", "arch"}
            and all(selector[key] for key in _SELECTOR if key in selector),
            "fields of a platform": set(platform) <= _OF_PLATFORM,
        }
        wrong += [field for field, right in of_platform.items() if not right]
    return wrong


def test_manifest_follows_the_rules_of_krew() -> None:
    assert mistakes("outscaler", MANIFEST) == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("apiVersion", "v1"),
        ("kind", "Plug"),
        ("version", "1.2.3"),
        ("shortDescription", "a\nb"),
        ("platforms", []),
        ("uri", ""),
        ("sha256", "ABC"),
        ("bin", ""),
        ("files", []),
        ("selector", {"matchLabels": {"cpu": "x"}}),
    ],
)
def test_manifest_that_krew_would_refuse_is_detected(place: str, value: object) -> None:
    broken = json.loads(json.dumps(MANIFEST))
    owner = broken if place in broken else broken["spec"]
    if place in {"uri", "sha256", "bin", "files", "selector"}:
        [owner] = broken["spec"]["platforms"]
    owner[place] = value
    assert mistakes("outscaler", broken) == [place]


def test_manifest_names_the_release_its_archive_and_its_checksum() -> None:
    [platform] = MANIFEST["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(PACKED).hexdigest()
    assert (
        platform["uri"]
        == f"{repository()}/releases/download/v{VERSION}/outscaler-{VERSION}-kubectl.tar.gz"
    )
    assert MANIFEST["spec"]["homepage"] == repository()
    assert UNRELEASED not in TEXT
    assert NO_SUM not in TEXT


def unpacked(data: bytes, folder: Path) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(folder, filter="data")
        assert {entry.mtime for entry in tar.getmembers()} == {EPOCH}
        return sorted(tar.getnames())


def test_archive_of_the_plugin_has_the_program_and_the_licence(tmp_path: Path) -> None:
    [platform] = MANIFEST["spec"]["platforms"]
    assert unpacked(PACKED, tmp_path) == ["LICENSE", platform["bin"]]
    assert os.access(tmp_path / platform["bin"], os.X_OK)
    assert f"RELEASE={VERSION}\n" in (tmp_path / platform["bin"]).read_text()


def run(programs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the plugin with only the given programs on PATH."""
    return subprocess.run(
        ["/bin/sh", str(SCRIPT), *arguments],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("programs", "printed"),
    [
        (("outscaler", "uvx", "pipx"), "outscaler get nodes"),
        (("uvx", "pipx"), f"uvx --from outscaler=={UNRELEASED} outscaler get nodes"),
        (("pipx",), f"pipx run --spec outscaler=={UNRELEASED} outscaler get nodes"),
    ],
)
def test_plugin_runs_the_command_that_is_there(
    tmp_path: Path, programs: tuple[str, ...], printed: str
) -> None:
    for name in programs:
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    done = run(tmp_path, "get", "nodes")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{printed}\n", "")


def test_plugin_without_a_program_says_what_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, "get")
    assert (done.returncode, done.stdout) == (127, "")
    assert "pip install outscaler" in done.stderr
    assert done.stderr.count("\n") == 1


def test_released_chart_has_the_release_and_the_manifests(tmp_path: Path) -> None:
    names = unpacked(chart(ROOT, VERSION, EPOCH), tmp_path)
    made = yaml.safe_load((tmp_path / "outscaler" / "Chart.yaml").read_text())
    assert (made["version"], made["appVersion"]) == (VERSION, VERSION)
    linked = {f"outscaler/manifests/{file.name}" for file in (ROOT / CHART / "manifests").iterdir()}
    assert linked <= set(names)
    assert {
        f"outscaler/templates/{name}" for name in ("access.yaml", "watcher.yaml", "NOTES.txt")
    } <= set(names)


def test_archives_of_the_same_commit_have_equal_bytes() -> None:
    assert chart(ROOT, VERSION, EPOCH) == chart(ROOT, VERSION, EPOCH)
    assert plugin(ROOT, VERSION, EPOCH)[0] == PACKED


def test_released_schema_is_the_one_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == schema()
