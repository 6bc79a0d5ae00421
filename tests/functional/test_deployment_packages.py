"""`make deploy` and `make package` install what they need and little more: their lock
suffices, and it is small.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.source_trees import ROOT
from tests.unit.test_locks import pins

MOST = 250 * 10**6  # bytes, with the virtual environment's own pip
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
LOCKED = {
    pin.name: pin.version
    for pin in pins((ROOT / "requirements-deploy.txt").read_text())
    if pin.holds(_PYTHON)
}
#: What a deployment runs, in processes of its own; Chalice itself runs in the third.
_MODULES = (
    "infra.aws.deploy.__main__, infra.aws.deploy.chalice_command, infra.aws.package",
    "infra.aws.deploy.chalice_graph, app",
    "chalice.cli, app",
)


def recipes() -> dict[str, tuple[str, str]]:
    """Target of make -> what it needs, and its recipe."""
    text = (ROOT / "Makefile").read_text()
    return {
        name: (needs, body)
        for name, needs, body in re.findall(r"^([a-z-]+): (.*?) ##.*\n((?:\t.*\n)+)", text, re.M)
    }


@pytest.mark.parametrize("target", ["deploy", "check", "undeploy", "package"])
def test_target_of_a_deployment_installs_its_own_lock_only(target: str) -> None:
    needs, body = recipes()[target]
    assert needs == "$(DEPLOY_STAMP)"
    assert "infra.aws." in body


def test_packages_of_a_deployment_take_less_than_250_megabytes() -> None:
    sizes = {}
    for name, version in LOCKED.items():
        installed = distribution(name)
        assert installed.version == version
        files = [
            Path(str(file.locate()))
            for file in installed.files or ()
            if not file.name.endswith(".pyc")
        ]
        sizes[name] = sum(file.stat().st_size for file in files)
    assert len(sizes) > 30
    assert sum(sizes.values()) < MOST, sorted(sizes.items(), key=lambda row: -row[1])[:9]


_BLOCK = """\
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
ABSENT = frozenset(sys.argv[1].split(","))
sys.meta_path.insert(0, Absent())
"""


def imported(modules: str) -> subprocess.CompletedProcess[str]:
    """Imports modules where every package that the lock lacks is absent."""
    owners = packages_distributions()
    kept = {
        name
        for name, each in owners.items()
        if {canonicalize_name(owner) for owner in each} & {*LOCKED, "outscaler"}
    }
    absent = ",".join(sorted(set(owners) - kept))
    command = [sys.executable, "-c", f"{_BLOCK}import {modules}", absent]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("modules", _MODULES)
def test_deployment_runs_without_any_package_that_its_lock_lacks(modules: str) -> None:
    assert imported(modules).stderr == ""


def test_package_that_the_lock_lacks_is_absent() -> None:
    assert "No module named 'moto'" in imported("moto").stderr
