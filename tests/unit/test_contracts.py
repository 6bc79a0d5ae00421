"""The import contracts of pyproject.toml refuse what they say they refuse, and the
planner's packages stay pure.

import-linter knows no allow-list of external modules, so the purity of plan, model, schedules and
reasons is tested here over the syntax trees, imports inside functions included.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_trees import (
    ROOT,
    circles,
    import_graph,
    imported_names,
    module_name,
    nodes_of,
    trees,
)

# -- contracts of import-linter

#: Contract -> the imports that are added to a copy of the tree: (file, module
#: that it must not import).
PROBES: dict[str, tuple[tuple[str, str], ...]] = {
    "Each package imports only the packages below it": (
        ("policy/load", "chalicelib.plan.planner"),
        ("store/journal", "chalicelib.cluster.objects"),
        ("model/group", "chalicelib.schedules.cron"),
    ),
    "Inside plan: the planner above the decisions, the decisions above the simulation": (
        ("plan/tables", "chalicelib.plan.planner"),
        ("plan/scale_up/scale_up_limits", "chalicelib.plan.removal.removal_planner"),
    ),
    "Inside operations: the runner above its parts, its parts above the steps": (
        ("operations/steps/scale_up", "chalicelib.operations.ordering"),
        ("operations/step_context", "chalicelib.operations.runner"),
    ),
    "Inside providers: the registry above the vendors, the vendors above their common parts": (
        ("providers/kit/http", "chalicelib.providers.exoscale.api"),
        ("providers/alicloud/api", "chalicelib.providers.registry"),
    ),
    "Inside the kit of providers: the protocol above the clients": (
        ("providers/kit/errors", "chalicelib.providers.kit.base"),
    ),
    (
        "Inside each vendor: the provider above the changes, the changes above the reading, the "
        "reading above the API"
    ): (
        ("providers/alicloud/api", "chalicelib.providers.alicloud.node_groups"),
        ("providers/cherryservers/decoding", "chalicelib.providers.cherryservers.api"),
        ("providers/clusterapi/node_groups", "chalicelib.providers.clusterapi.scale_up"),
        ("providers/exoscale/credentials", "chalicelib.providers.exoscale.api"),
        ("providers/huaweicloud/scale_up", "chalicelib.providers.huaweicloud.provider"),
    ),
    "Providers do not know each other": (
        ("providers/exoscale/zone", "chalicelib.providers.huaweicloud.models"),
    ),
    "Only the clients of AWS import its libraries": (
        ("journal/journal", "botocore"),
        ("cluster/client", "boto3"),
        ("providers/huaweicloud/credentials", "botocore"),
        ("plan/group_repair", "pynamodb"),
    ),
    "HTTP leaves through one transport": (
        ("providers/kit/services", "requests"),
        ("cluster/client", "urllib3"),
        ("functions/read_api", "http"),
    ),
    "Nothing imports the command: the packager leaves its folder out of the functions": (
        ("functions/read_api", "chalicelib.cli.output"),
        ("store/journal", "chalicelib.cli.saved.saved_cluster"),
    ),
    (
        "The transport is used by the clients of the cluster's and the vendors' APIs, and by both "
        "webhooks"
    ): (
        ("journal/journal", "chalicelib.net.http_exchange"),
        ("providers/exoscale/api", "chalicelib.net.http_session"),
    ),
}


def configured_contracts() -> set[str]:
    """The names of the contracts in pyproject.toml."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return {contract["name"] for contract in linter["contracts"]}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Contract -> the text of its refusal, for a copy of the tree with every probe in it."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "chalicelib", copy / "chalicelib", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", copy)
    for file, module in (probe for probes in PROBES.values() for probe in probes):
        path = copy / "chalicelib" / f"{file}.py"
        path.write_text(f"{path.read_text('utf-8')}\nimport {module}\n", "utf-8")
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"],
        cwd=copy,
        env={"PYTHONPATH": str(copy), "PATH": "", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    sections = re.split(
        r"^(.+)\n-{3,}\n", ran.stdout.partition("\nBroken contracts\n")[2], flags=re.MULTILINE
    )
    return dict(zip(sections[1::2], sections[2::2], strict=True))


def test_every_contract_has_a_probe() -> None:
    assert set(PROBES) == configured_contracts()


@pytest.mark.parametrize("contract", PROBES, ids=lambda name: name.partition(":")[0])
def test_contract_refuses_each_forbidden_import(contract: str, report: dict[str, str]) -> None:
    importers = [
        (f"chalicelib.{file.replace('/', '.')}", module) for file, module in PROBES[contract]
    ]
    missing = [
        probe
        for probe in importers
        if f"{probe[0]} -> {probe[1]} (" not in report.get(contract, "")
    ]
    assert missing == []


# -- purity

PURE_PACKAGES = (
    "chalicelib/plan",
    "chalicelib/model",
    "chalicelib/schedules",
    "chalicelib/reasons",
)
#: All that these packages import from outside. Pure: no clock, no chance, no
#: input or output, no thread.
PURE_MODULES = frozenset(
    {
        "__future__", "base64", "bisect", "collections", "collections.abc", "copy", "cronsim",
        "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "html",
        "itertools", "json", "math", "msgspec", "numpy", "numpy.typing", "operator", "re", "struct",
        "types", "typing", "urllib.parse", "zlib", "zoneinfo",
    }
)  # fmt: skip
#: (file, what it uses) -> why it may.
PURE_EXCEPTIONS = {
    (
        "chalicelib/plan/packing/linear_solver.py",
        "importlib",
    ): "loads the solver when it is first used",
    (
        "chalicelib/plan/scale_up/least_cost/node_filling.py",
        "random",
    ): "a fixed seed",
}
_IMPURE_CALLS = frozenset({"open", "print", "input", "eval", "exec", "__import__"})
_CLOCKS = frozenset({"now", "utcnow", "today"})


def impure_uses(tree: ast.Module) -> Iterator[str]:
    """Modules that are not on the list, parts of numpy that are not, readings of a
    clock, input and output."""
    numpy_names = {"numpy"}
    for module, name in imported_names(tree):
        whole = f"{module}.{name}"
        if module.startswith("chalicelib"):
            continue
        if module not in PURE_MODULES:
            yield module
        elif whole in {"numpy.random", "numpy.memmap", "numpy.load", "numpy.save"}:
            yield whole
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            numpy_names |= {
                alias.asname for alias in node.names if alias.name == "numpy" and alias.asname
            }
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in numpy_names and node.attr in {"random", "memmap", "load", "save"}:
                yield f"numpy.{node.attr}"
            if node.value.id in {"datetime", "date"} and node.attr in _CLOCKS:
                yield f"{node.value.id}.{node.attr}"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _IMPURE_CALLS
        ):
            yield node.func.id


def test_pure_packages_use_only_listed_modules() -> None:
    found = {(file, use) for file, tree in trees(*PURE_PACKAGES) for use in impure_uses(tree)}
    assert found == set(PURE_EXCEPTIONS)


@pytest.mark.parametrize(
    "source",
    [
        "import threading",
        "import os",
        "import time",
        "import random",
        "import logging",
        "import secrets",
        "import numpy.random",
        "from numpy import random",
        "import numpy as np\nnp.random.default_rng(0)",
        "def f():\n    import socket",
        "def f():\n    from urllib.request import urlopen",
        "from datetime import datetime\ndatetime.now()",
        "open('file')",
        "__import__('os')",
    ],
)
def test_impure_use_is_found(source: str) -> None:
    assert list(impure_uses(ast.parse(source)))


# -- circles


def test_modules_import_each_other_in_no_circle() -> None:
    assert (
        circles(
            import_graph(
                {module_name(file): tree for file, tree in trees("app.py", "chalicelib", "infra")}
            )
        )
        == []
    )


def test_type_only_circle_is_found() -> None:
    first = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import b")
    graph = import_graph(
        {
            "p.a": first,
            "p.b": ast.parse("def f():\n    from p.a import g"),
            "p.c": ast.parse("import p.a"),
        }
    )
    assert circles(graph) == [["p.a", "p.b"]]
