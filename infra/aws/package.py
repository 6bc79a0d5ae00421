"""`python -m infra.aws.package --stage prod --out build`: from the tree to build/sam.json and build/deployment.zip.

`chalice package` does the work; around it is what experience asks for (docs/deploy.md): only what the functions need is
copied to where Chalice looks, so that the artifact does not depend on what else lies in the tree; the merge template is
JSON, because Chalice's YAML carries anchors that CloudFormation refuses; its output is read for the dependency that it
could not install, which it only mentions; and the zip is written anew (artifact.py).

pip runs as this machine has it configured: PIP_* variables reach it, so it also works without a network. It takes what
has a hash in requirements.txt, and nothing else: Chalice asks for some packages a second time, by name, where the first
download is not for Lambda's platform, and these requests would not be checked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.aws.artifact import rewrite
from infra.aws.merge import merge_template

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
POLICIES = HERE / "policies"

_INCOMPLETE = "Could not install dependencies"
_CHALICE = "import sys; from chalice.cli import main; sys.exit(main())"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "cli", "__main__.py", ".*")


class PackagingFailed(Exception):
    """The artifact could not be built; the message says what to do."""


def package(stage: str, out: Path) -> dict[str, Any]:
    """Build a stage of .chalice/config.json into `out`; returns the SAM template. Raises PackagingFailed."""
    copy_sources(out / "project")
    made = template(stage, out, out / "project")
    rewrite(out / "deployment.zip")
    return made


def template(stage: str, out: Path, project: Path) -> dict[str, Any]:
    """sam.json, and deployment.zip as Chalice makes it, of the sources in `project`. Raises PackagingFailed.

    For another stage of the same folder Chalice does not fetch the dependencies again.
    """
    config = json.loads((ROOT / ".chalice" / "config.json").read_text())
    if stage not in config["stages"]:
        raise PackagingFailed(f"--stage {stage}: not in .chalice/config.json; use one of {', '.join(config['stages'])}")
    out.mkdir(parents=True, exist_ok=True)
    merge = out / "merge.json"
    merge.write_text(json.dumps(merge_template(config["stages"][stage]), indent=2))
    _run_chalice(project, stage, merge, out)
    made: dict[str, Any] = json.loads((out / "sam.json").read_text())
    (out / "sam.json").write_text(json.dumps(made, indent=2, sort_keys=True) + "\n")
    return made


def copy_sources(project: Path) -> None:
    """Chalice packs all of chalicelib; the command line and whatever else lies about is no business of Lambda's."""
    shutil.rmtree(project / "chalicelib", ignore_errors=True)
    shutil.copytree(ROOT / "chalicelib", project / "chalicelib", ignore=_LEFT_OUT)
    settings = project / ".chalice"
    settings.mkdir(exist_ok=True)
    (settings / "config.json").write_text(json.dumps(_generated_names(), indent=2))
    for file in POLICIES.glob("*.json"):
        shutil.copy(file, settings / f"policy-{file.name}")
    for name in ("app.py", "requirements.txt"):
        shutil.copy(ROOT / name, project)


def _generated_names() -> dict[str, Any]:
    """The configuration without what fixes names: CloudFormation generates them, and the policies refer to them."""
    config: dict[str, Any] = json.loads((ROOT / ".chalice" / "config.json").read_text())
    for name, stage in config["stages"].items():
        for variable in ("OUTSCALER_PREFIX", "OUTSCALER_SECRET_PREFIX"):
            del stage["environment_variables"][variable]
        for function in stage["lambda_functions"].values():
            function["iam_policy_file"] = function["iam_policy_file"].replace(f"policy-{name}-", "policy-")
    return config


def _run_chalice(project: Path, stage: str, merge: Path, out: Path) -> None:
    command = [sys.executable, "-c", _CHALICE, "--project-dir", str(project.resolve()), "package", "--stage", stage,
               "--merge-template", str(merge.resolve()), str(out.resolve())]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PIP_REQUIRE_HASHES": "1"}
    environment.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=project)
    said = done.stdout + done.stderr
    if done.returncode:
        raise PackagingFailed(f"chalice package failed:\n{said}")
    if _INCOMPLETE in said:
        raise PackagingFailed("chalice left dependencies out; pin versions with wheels for Lambda's glibc, and package "
                              f"on Linux with Lambda's processor and Python:\n{said}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m infra.aws.package", description="build what is deployed")
    parser.add_argument("--stage", default="prod", help="a stage of .chalice/config.json (prod)")
    parser.add_argument("--out", default="build", type=Path, help="where to put them (build)")
    given = parser.parse_args(arguments)
    try:
        package(given.stage, given.out)
    except PackagingFailed as failed:
        sys.stderr.write(f"{failed}\n")
        return 2
    size = (given.out / "deployment.zip").stat().st_size / 1e6
    sys.stdout.write(f"{given.out / 'sam.json'}, {given.out / 'deployment.zip'} ({size:.1f} MB)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
