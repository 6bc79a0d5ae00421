"""Names in backticks in the documents exist: paths, dotted modules, and classes of the code.

A renamed module or class otherwise stays in the documents under its old name,
where no compiler finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.source_trees import ROOT, sources

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
#: A Python file below a folder, or anything below a folder of the repository.
_PATH = re.compile(
    (
        r"(?<![\w./<{-])((?:[\w.-]+/)+[\w.-]+\.py\b|(?:chalicelib|docs|infra|tests)/[\w./-]+)(?"
        r"![\w*<{])"
    ),
    re.ASCII,
)
_MODULE = re.compile(r"(?<![\w./-])((?:chalicelib|infra|tests)(?:\.\w+)+)")
_CAMEL_CASE = re.compile(r"(?<![\w.:/-])([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)(?!\w)")
#: Folders from which the documents cite files.
_BASES = (ROOT, ROOT / "chalicelib", ROOT / "docs")
#: Names of Kubernetes, AWS and vendors that no Python file contains.
_FOREIGN = frozenset(
    {
        "AmazonAPIGatewayPushToCloudWatchLogs",  # a policy that AWS manages
        "DecisionsPlace",  # output of the CloudFormation template
        "EndpointURL",  # output of the CloudFormation template
        "GracefulDegradation",  # an event reason of Cluster Autoscaler
        "RestAPIId",  # output of the CloudFormation template
        "UseAlicloud",  # parameters of the CloudFormation template
        "UseCherryservers",
        "UseClusterapi",
        "UseExoscale",
        "UseHuaweicloud",
    }
)


def pages() -> list[str]:
    return [
        "CONTRIBUTING.md",
        "README.md",
        *(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")),
    ]


@cache
def words() -> frozenset[str]:
    """All words of the Python files, strings and comments included, except of this file."""
    return frozenset(
        word
        for path in sources("app.py", "chalicelib", "infra", "tests")
        if path.name != "test_document_names.py"
        for word in re.findall(r"\w+", path.read_text("utf-8"))
    )


def _is_module(name: str) -> bool:
    """Whether the dotted name is a module, a package, or a name in one of them."""
    path = ROOT / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    owner = next(
        (
            each
            for each in (path.parent.with_suffix(".py"), path.parent / "__init__.py")
            if each.is_file()
        ),
        None,
    )
    return (
        owner is not None and re.search(rf"\b{path.name}\b", owner.read_text("utf-8")) is not None
    )


def missing_names(text: str) -> Iterator[str]:
    """Names in backticks that neither the repository nor the table of foreign names has."""
    for code in _CODE.findall(_FENCE.sub("", text)):
        for path in _PATH.findall(code):
            if not any((base / path.rstrip("/.")).exists() for base in _BASES):
                yield path
        yield from (
            name
            for name in _MODULE.findall(code)
            if not name.endswith((".py", ".md")) and not _is_module(name)
        )
        yield from (
            name
            for name in _CAMEL_CASE.findall(code)
            if name not in words() and name not in _FOREIGN
        )


def test_every_name_of_code_in_the_documents_exists() -> None:
    found = {page: sorted(set(missing_names((ROOT / page).read_text("utf-8")))) for page in pages()}
    assert {page: names for page, names in found.items() if names} == {}


def test_every_foreign_name_is_used_in_a_document() -> None:
    texts = "\n".join((ROOT / page).read_text("utf-8") for page in pages())
    assert [name for name in sorted(_FOREIGN) if f"`{name}`" not in texts] == []


@pytest.mark.parametrize(
    "name",
    [
        "plan/" + "no_such_module.py",
        "infra/" + "no-such-folder",
        "chalicelib.plan." + "no_such_module",
        "chalicelib.plan.planner." + "no_such_function",
        "NoSuch" + "Planner",
    ],
)
def test_missing_name_in_a_document_is_found(name: str) -> None:
    assert list(missing_names(f"as `{name}` shows")) == [name]


@pytest.mark.parametrize(
    "code",
    [
        "chalicelib/plan/planner.py",
        "plan/planner.py",
        "tests/unit",
        "chalicelib.plan.planner",
        "python -m infra.demo.drains",
        "MaxDisruption",
        "https://example.org/a/b.py",
        "tests/providers/<name>/fixture.py",
    ],
)
def test_existing_or_foreign_name_in_a_document_is_accepted(code: str) -> None:
    assert list(missing_names(f"as `{code}` shows")) == []
