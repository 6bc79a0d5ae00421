"""Rules about names and about the tops of packages, so that the tree's listing tells where a thing is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import pytest

from tests.source_trees import ROOT, sources, trees

# -- classes


def test_no_class_name_is_used_more_than_twice() -> None:
    names = Counter(
        node.name
        for _, tree in trees("app.py", "chalicelib", "infra", "tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert {name: count for name, count in names.items() if count > 2} == {}


# -- modules

_ENDINGS = ("ations", "ation", "ings", "ing", "ions", "ion", "ies", "ers", "ors", "es", "ed", "er", "or", "s", "y", "e")


def stem(word: str) -> str:
    """The word without its ending, so that forms of one word are equal."""
    ending = next((each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= 3), "")
    return word.removesuffix(ending)


def are_confusable(one: str, other: str) -> bool:
    """Whether two module names differ by one letter, by an underscore or by the forms of their words."""
    first, second = one.replace("_", ""), other.replace("_", "")
    if first == second or [stem(word) for word in one.split("_")] == [stem(word) for word in other.split("_")]:
        return True
    if len(first) == len(second):
        return sum(a != b for a, b in zip(first, second, strict=True)) == 1
    short, long = sorted((first, second), key=len)
    return len(long) - len(short) == 1 and any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def names_by_scope(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Scope -> names of its modules and packages. A scope is a package of chalicelib with all that is in it, one
    vendor's package, or a folder of infra."""
    scopes: dict[str, set[str]] = {}
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        depth = len(parts) - 1 if parts[0] == "infra" else 3 if parts[:2] == ("chalicelib", "providers") else 2
        scopes.setdefault("/".join(parts[: min(depth, len(parts) - 1)]), set()).add(parts[-1])
    return scopes


def test_no_two_modules_of_a_package_have_confusable_names() -> None:
    found = [
        (scope, one, other)
        for scope, names in names_by_scope(sources("chalicelib", "infra")).items()
        for one, other in combinations(sorted(names), 2)
        if are_confusable(one, other)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("one", "other"),
    [("machinepools", "machine_pools"), ("token", "tokens"), ("stage", "state"), ("record", "recorder")],
)
def test_confusable_names_are_found(one: str, other: str) -> None:
    assert are_confusable(one, other)


# -- packages


def package_docstrings() -> dict[str, str]:
    """Package of chalicelib -> its docstring."""
    packages = {path.parent.relative_to(ROOT).as_posix() for path in sources("chalicelib")}
    tops = {package: ROOT / package / "__init__.py" for package in packages}
    return {
        package: (ast.get_docstring(ast.parse(top.read_text("utf-8"))) or "") if top.is_file() else ""
        for package, top in sorted(tops.items())
    }


def test_top_of_each_package_says_its_content() -> None:
    assert [package for package, text in package_docstrings().items() if "Here:" not in text] == []


def test_top_of_each_package_says_what_is_elsewhere() -> None:
    texts = {package: " ".join(text.split()) for package, text in package_docstrings().items()}
    assert [package for package, text in texts.items() if "Not here:" not in text] == []


# -- vendors

#: The modules that each vendor's package has: the same job has the same file name in each.
DRAWERS = (
    "api",
    "credentials",
    "decoding",
    "delete_nodes",
    "node_groups",
    "node_template",
    "provider",
    "scale_up",
)
#: (vendor, module that it does not have) -> why.
WITHOUT_DRAWER = {
    ("cherryservers", "credentials"): "the vendor's requests carry a bearer token (tokens.py) and no signature",
    ("clusterapi", "credentials"): "requests go through the management cluster's client, which authenticates them",
    ("clusterapi", "decoding"): "objects of the Kubernetes API are decoded by the types in models.py alone",
}


def test_five_vendors_have_the_same_modules() -> None:
    vendors = sorted({path.parent for path in sources("chalicelib/providers") if path.parent.name != "providers"})
    assert len(vendors) == 5
    missing = {(folder.name, name) for folder in vendors for name in DRAWERS if not (folder / f"{name}.py").is_file()}
    assert missing == set(WITHOUT_DRAWER)
    declared = {path.stem for path in sources("chalicelib/policy/vendors")} - {"__init__", "settings"}
    assert declared == {folder.name for folder in vendors}
