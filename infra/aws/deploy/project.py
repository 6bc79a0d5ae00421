"""The folder in which `chalice deploy` runs, with our package where Chalice
looks for a prebuilt one.

Chalice names a package after a hash of the sources, including bytecode files, and builds a new
package if no file has that name. Its own package is larger and starts ten times slower. Therefore
the folder is a copy without bytecode, nothing may write bytecode to it, and our zip has the name
that Chalice expects.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from chalicelib.model.resource_names import DECISIONS, LISTS, PAGE_KEY
from infra.aws.deploy.chalice_resources import Graph, graph_of
from infra.aws.deploy.foundation import decisions_bucket, lists_bucket
from infra.aws.deploy.literal_policies import documents, page_secret
from infra.aws.deploy.stage import CONFIG, ROOT, Stage
from infra.aws.package import copy_sources
from infra.aws.template_overlay import PASS_FUNCTIONS

_PLACEHOLDER = {"Version": "2012-10-17", "Statement": []}


def copied(stage: Stage, folder: Path, stopped: frozenset[str] = frozenset()) -> Graph:
    """Copy the sources to `folder` with the roles' policies and return the resources
    that Chalice would create.

    stopped: resource names of functions whose concurrency a person has set to 0. They stay stopped,
    although Chalice removes any limit that the configuration does not contain.
    """
    copy_sources(folder)
    config: dict[str, Any] = json.loads((ROOT / CONFIG).read_text("utf-8"))
    functions = config["stages"][stage.name]["lambda_functions"]
    for name in stopped:
        functions[name]["reserved_concurrency"] = 0
    if stage.options.hosted_page:
        functions["api_handler"].setdefault("environment_variables", {})[PAGE_KEY] = page_secret(
            stage
        )
    for variable, bucket, users in (
        (DECISIONS, decisions_bucket(stage), PASS_FUNCTIONS),
        (LISTS, lists_bucket(stage), (*PASS_FUNCTIONS, "api_handler")),
    ):
        for name in users if bucket else ():
            functions[name].setdefault("environment_variables", {})[variable] = f"s3://{bucket}"
    (folder / CONFIG).write_text(json.dumps(config, indent=2), "utf-8")
    for file in (folder / ".chalice").glob("policy-*.json"):
        file.unlink()
    return with_policies(stage, folder)


def with_policies(stage: Stage, folder: Path) -> Graph:
    """Write the roles' literal policies to a project's .chalice and return the resources
    that Chalice would create."""
    settings = folder / ".chalice"
    for function in stage.config["lambda_functions"].values():
        place = settings / function["iam_policy_file"]
        if not place.exists():
            # Chalice needs this file before it reports its name
            place.write_text(json.dumps(_PLACEHOLDER), "utf-8")
    graph = graph_of(folder, stage.name)
    for name, document in documents(stage, graph).items():
        (settings / name).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return graph


def seed(package: Path, graph: Graph) -> None:
    """Copy the package to the path where Chalice looks for it."""
    place = Path(graph.package)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(package, place)


def remember(deployed: dict[str, Any], stage: Stage, folder: Path) -> None:
    """Write Chalice's record of a deployment (state.py) to the path where Chalice looks for it."""
    place = folder / ".chalice" / "deployed" / f"{stage.name}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(deployed, indent=2) + "\n", "utf-8")
