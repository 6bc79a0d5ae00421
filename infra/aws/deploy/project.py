"""The folder that `chalice deploy` works in, with our package in the place where Chalice looks for one made before.

Chalice names a package after a hash of the sources, files of bytecode included, and makes a new one where none has that
name. Its own is larger and starts ten times slower. So the folder is a copy without bytecode, nothing may write any
into it, and our zip has the name that Chalice asks for.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from infra.aws.deploy.chalice_resources import Graph, graph_of
from infra.aws.deploy.literal_policies import documents
from infra.aws.deploy.stage import CONFIG, ROOT, Stage
from infra.aws.package import copy_sources

_PLACEHOLDER = {"Version": "2012-10-17", "Statement": []}


def copied(stage: Stage, folder: Path, stopped: frozenset[str] = frozenset()) -> Graph:
    """A copy of the sources in `folder` with the roles' policies; what Chalice would make of it.

    stopped: resource names of functions whose concurrency a person has set to 0, which stays so: Chalice lifts any
    limit that the configuration does not name.
    """
    copy_sources(folder)
    config: dict[str, Any] = json.loads((ROOT / CONFIG).read_text("utf-8"))
    functions = config["stages"][stage.name]["lambda_functions"]
    for name in stopped:
        functions[name]["reserved_concurrency"] = 0
    (folder / CONFIG).write_text(json.dumps(config, indent=2), "utf-8")
    for file in (folder / ".chalice").glob("policy-*.json"):
        file.unlink()
    return with_policies(stage, folder)


def with_policies(stage: Stage, folder: Path) -> Graph:
    """Write the roles' literal policies into a project's .chalice; what Chalice would make of the project."""
    settings = folder / ".chalice"
    for function in stage.config["lambda_functions"].values():
        place = settings / function["iam_policy_file"]
        if not place.exists():
            place.write_text(json.dumps(_PLACEHOLDER), "utf-8")  # Chalice wants the file before it tells its name
    graph = graph_of(folder, stage.name)
    for name, document in documents(stage, graph).items():
        (settings / name).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return graph


def seed(package: Path, graph: Graph) -> None:
    """Put the package where Chalice looks for it."""
    place = Path(graph.package)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(package, place)


def remember(deployed: dict[str, Any], stage: Stage, folder: Path) -> None:
    """Write what Chalice remembers of a deployment (state.py) to where it looks for it."""
    place = folder / ".chalice" / "deployed" / f"{stage.name}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(deployed, indent=2) + "\n", "utf-8")
