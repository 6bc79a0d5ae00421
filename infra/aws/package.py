"""`python -m infra.aws.package --stage dev --out build`: builds build/sam.json and
build/deployment.zip from the tree.

`chalice package` does the main work. The steps around it avoid known problems:
- Only what the functions need is copied to where Chalice looks, so the artifact does not depend on
  other files in the tree.
- The merge template is JSON, because Chalice's YAML contains anchors that CloudFormation rejects.
- The dependencies are wheels for the functions' processor, which may differ from this machine's
  (wheels.py). Chalice does not get them: it would compress and copy them, and they are added when
  the zip is rewritten (artifact.py).
- The zip is rejected if a binary in it is for another processor or Python version (binaries.py).

The Python version that runs this module is the version of the functions.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from infra.aws.artifact import rewrite
from infra.aws.binaries import foreign
from infra.aws.template_overlay import finished, merge_template
from infra.aws.wheels import MACHINES, install, runtime
from infra.aws.wheels import PackagingFailed as PackagingFailed  # noqa: PLC0414 - callers catch it from here
from infra.tools.interruptible import run

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
POLICIES = HERE / "policies"

_CHALICES_DEFAULT = "x86_64"
_CHALICE = "import sys; from chalice.cli import main; sys.exit(main())"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "cli", "__main__.py")


def package(stage: str, out: Path, architecture: str = "") -> dict[str, Any]:
    """Build a stage of .chalice/config.json into `out` and return the SAM
    template. Raises PackagingFailed.

    architecture: arm64 or x86_64; empty for the stage's lambda_architecture. `out` gets sam.json,
    deployment.zip, and wheels.json, which lists the dependencies in the zip.
    """
    project, architecture = out / "project", architecture or configured_architecture(stage)
    copy_sources(project)
    _without_dependencies(project, architecture)
    made = template(stage, out, project)
    archive = out / "deployment.zip"
    with tempfile.TemporaryDirectory() as tree:
        wheels = install(ROOT / "requirements.txt", Path(tree), architecture)
        (out / "wheels.json").write_text(json.dumps(msgspec.to_builtins(wheels), indent=2) + "\n")
        rewrite(archive, Path(tree))
    if misfits := list(foreign(archive, architecture, runtime())):
        archive.unlink()
        raise PackagingFailed(
            (
                f"{len(misfits)} files cannot run in Lambda; pin other versions of what they come "
                "from:\n"
            )
            + "\n".join(misfits[:10])
        )
    return made


def configured_architecture(stage: str) -> str:
    """Return the processor that .chalice/config.json names for a stage. Raises PackagingFailed
    if the stage is missing."""
    config = _config(stage)
    return str(
        config["stages"][stage].get("lambda_architecture")
        or config.get("lambda_architecture")
        or _CHALICES_DEFAULT
    )


def _config(stage: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((ROOT / ".chalice" / "config.json").read_text())
    if stage not in config["stages"]:
        raise PackagingFailed(
            f"--stage {stage}: not in .chalice/config.json; use one of "
            f"{', '.join(config['stages'])}"
        )
    return config


def _without_dependencies(project: Path, architecture: str) -> None:
    """Leave Chalice nothing to install, and set the processor of every function."""
    (project / "requirements.txt").write_text("")
    settings = project / ".chalice" / "config.json"
    config = json.loads(settings.read_text()) | {"lambda_architecture": architecture}
    for stage in config["stages"].values():
        stage.pop("lambda_architecture", None)
    settings.write_text(json.dumps(config, indent=2))


def template(stage: str, out: Path, project: Path) -> dict[str, Any]:
    """Return sam.json and make Chalice's deployment.zip from the sources in
    `project`. Raises PackagingFailed."""
    config = _config(stage)
    out.mkdir(parents=True, exist_ok=True)
    merge = out / "merge.json"
    merge.write_text(json.dumps(merge_template(config["stages"][stage]), indent=2))
    _run_chalice(project, stage, merge, out)
    made = finished(json.loads((out / "sam.json").read_text()))
    (out / "sam.json").write_text(json.dumps(made, indent=2, sort_keys=True) + "\n")
    return made


def copy_sources(project: Path) -> None:
    """Copy the sources without the command line and other files. Chalice
    packs all of chalicelib."""
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
    """Return the configuration without what template parameters define, mainly names, which
    CloudFormation generates."""
    config: dict[str, Any] = json.loads((ROOT / ".chalice" / "config.json").read_text())
    for name, stage in config["stages"].items():
        stage["environment_variables"] = {
            key: value
            for key, value in stage["environment_variables"].items()
            if not key.startswith("OUTSCALER_") or key == "OUTSCALER_READ_AUTH"
        }
        for function in stage["lambda_functions"].values():
            function["iam_policy_file"] = function["iam_policy_file"].replace(
                f"policy-{name}-", "policy-"
            )
    return config


def _run_chalice(project: Path, stage: str, merge: Path, out: Path) -> None:
    command = [
        sys.executable,
        "-c",
        _CHALICE,
        "--project-dir",
        str(project.resolve()),
        "package",
        "--stage",
        stage,
        "--merge-template",
        str(merge.resolve()),
        str(out.resolve()),
    ]
    # app.py reads OUTSCALER_ variables: those of a shell in which the command is used
    # would get into the template.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("OUTSCALER_")
    }
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PIP_NO_INDEX": "1", "PIP_REQUIRE_HASHES": "1"}
    environment.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, cwd=project
    )
    if done.returncode:
        raise PackagingFailed(f"chalice package failed:\n{done.stdout}{done.stderr}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.aws.package", description="build what is deployed"
    )
    parser.add_argument("--stage", default="dev", help="a stage of .chalice/config.json (dev)")
    parser.add_argument(
        "--architecture",
        choices=sorted(MACHINES),
        default="",
        help="the functions' processor (the stage's lambda_architecture)",
    )
    parser.add_argument("--out", default="build", type=Path, help="where to put them (build)")
    given = parser.parse_args(arguments)
    try:
        package(given.stage, given.out, given.architecture)
    except PackagingFailed as failed:
        sys.stderr.write(f"{failed}\n")
        return 2
    size = (given.out / "deployment.zip").stat().st_size / 1e6
    sys.stdout.write(f"{given.out / 'sam.json'}, {given.out / 'deployment.zip'} ({size:.1f} MB)\n")
    return 0


if __name__ == "__main__":
    run(main)
