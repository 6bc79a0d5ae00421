"""Rules about names and about the tops of packages, so that the tree's
listing tells where a thing is.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Set
from itertools import combinations
from pathlib import Path

import pytest

from tests.source_trees import ROOT, nodes_of, sources, trees

# -- classes


def test_no_class_name_is_used_more_than_twice() -> None:
    names = Counter(
        node.name
        for _, tree in trees("app.py", "chalicelib", "infra", "tests")
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert {name: count for name, count in names.items() if count > 2} == {}


# -- parameters and docstrings

#: (parameter, class) whose common word is not the class's: the parameter says more, or
#: the word is the field's.
OTHER_WORDS: frozenset[tuple[str, str]] = frozenset(
    {
        ("_", "CapiResource"),
        ("_", "ExpanderContext"),
        ("_", "KubernetesAccess"),
        ("arrival", "Action"),
        ("best", "Attempt"),
        ("blocked", "Reason"),
        ("body", "CreateServer"),
        ("pdbs", "PodDisruptionBudgets"),
        ("by_label", "Selector"),
        ("call", "VendorRequest"),
        ("chance", "_RandomNumbers"),
        ("config", "FileMount"),
        ("default", "PoolSection"),
        ("default", "_Section"),
        ("deployment", "CapiResource"),
        ("document", "Located"),
        ("earlier", "PoolSection"),
        ("error", "BadInput"),
        ("error", "InvalidRequest"),
        ("error", "NoReply"),
        ("forbidden", "ProviderError"),
        ("gap", "MissingData"),
        ("hold", "Reason"),
        ("keys", "CapiAnnotations"),
        ("kind", "ValueType"),
        ("known", "LearntTemplate"),
        ("machine", "CceNode"),
        ("machine", "ExoscaleInstance"),
        ("machine_set", "CapiResource"),
        ("node", "Seen"),
        ("obtained", "PluginCredential"),
        ("other", "_Profile"),
        ("outcome", "Failed"),
        ("outcome", "InProgress"),
        ("outcome", "Succeeded"),
        ("own", "PoolSection"),
        ("provider", "OneChangeAtATime"),
        ("raw", "_LabelSelector"),
        ("raw", "_NodeSelector"),
        ("raw", "_SelectorTerm"),
        ("secret", "_CleanupObject"),
        ("seen", "DebounceRow"),
        ("source", "ScalingConfiguration"),
        ("state", "Standing"),
        ("switch", "Argument"),
        ("topics", "Publisher"),
        ("unnamed", "BadInput"),
        ("unsure", "NotSimulated"),
    }
)
#: A name, or several, before a colon: at the beginning, after a full stop, a semicolon or a
#: colon, or on a new line.
_EXPLAINED = re.compile(r"(?:^|(?<=[.;:] )|(?<=\n))\s*([a-z]\w*(?:(?:, | and )[a-z]\w*)*):(?= )")
_PATH = re.compile(r"(?<![\w./*{<-])((?:\w+/)*\w+\.py)\b")


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def shares_a_word(parameter: str, class_name: str) -> bool:
    """Whether a word of the parameter begins as a word of the class does, with four
    letters or a shorter word."""
    return any(
        own.startswith(word[:4]) or word.startswith(own[:4])
        for own in words(parameter)
        for word in words(class_name)
    )


def class_of(annotation: ast.expr | None) -> str:
    """The class of `Name`, `Name | None` and `"Name"`; empty for other annotations."""
    if isinstance(annotation, ast.BinOp):
        return class_of(annotation.left)
    if isinstance(annotation, ast.Name):
        return annotation.id
    return (
        annotation.value
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
        else ""
    )


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def without_word_of_class(tree: ast.AST, classes: Set[str]) -> set[tuple[str, str]]:
    """(parameter, class) of all functions whose parameter bears no word of its class."""
    return {
        (parameter.arg, name)
        for function in nodes_of(tree)
        if isinstance(function, ast.FunctionDef)
        for parameter in parameters(function)
        if (name := class_of(parameter.annotation)) in classes
        and not shares_a_word(parameter.arg, name)
    }


def own_names(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """What a docstring may explain: parameters of a function and names in its body;
    fields, methods and their parameters of a class, and members of an enum, which
    documents write in small letters."""
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    names |= {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    names |= {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
    names |= {inner.name for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)}
    return names | {name.lower() for name in names}


def false_explanations(tree: ast.AST) -> list[str]:
    """`definition: name` for each name before a colon in a docstring that the
    definition does not have."""
    return [
        f"{node.name}: {name}"
        for node in nodes_of(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for match in _EXPLAINED.finditer(ast.get_docstring(node) or "")
        for name in re.split(r", | and ", match[1])
        if name not in own_names(node)
    ]


def missing_files(path: str, tree: ast.AST) -> list[str]:
    """Files that the docstrings of a module name and that are in no folder
    where a reader would look."""
    texts = [
        ast.get_docstring(node) or ""
        for node in nodes_of(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    parents = [ROOT, ROOT / "infra", *(ROOT / path).parents]
    return [
        name
        for text in texts
        for name in _PATH.findall(text)
        if not any((parent / name).is_file() for parent in parents if parent.is_relative_to(ROOT))
    ]


def test_parameters_bear_a_word_of_their_class() -> None:
    modules = [tree for _, tree in trees("chalicelib")]
    classes = {
        node.name for tree in modules for node in nodes_of(tree) if isinstance(node, ast.ClassDef)
    }
    assert len(classes) > 500
    others = set().union(*(without_word_of_class(tree, classes) for tree in modules))
    assert others == OTHER_WORDS, "rename the parameter; if the list is too long, shorten it"


@pytest.mark.parametrize(
    ("source", "others"),
    [
        ("def f(facts: NodeGroupState): ...", {("facts", "NodeGroupState")}),
        ("def f(*, rt: Runtime | None): ...", {("rt", "Runtime")}),
        ("def f(group: NodeGroupState, nodes: list[Node]): ...", set()),
    ],
)
def test_parameter_without_a_word_of_its_class_is_found(
    source: str, others: set[tuple[str, str]]
) -> None:
    assert without_word_of_class(ast.parse(source), {"NodeGroupState", "Runtime", "Node"}) == others


def test_docstrings_explain_only_what_exists() -> None:
    assert {
        name: wrong for name, tree in trees("chalicelib") if (wrong := false_explanations(tree))
    } == {}


def test_docstrings_name_only_files_that_exist() -> None:
    assert {
        name: wrong for name, tree in trees("chalicelib") if (wrong := missing_files(name, tree))
    } == {}


def test_docstring_that_explains_a_former_field_is_found() -> None:
    tree = ast.parse('class A:\n    """One. new: a field. old: a former one."""\n    new: int')
    assert false_explanations(tree) == ["A: old"]
    assert missing_files(
        "chalicelib/plan/planner.py", ast.parse('"""See no_such_file.py and planner.py."""')
    ) == ["no_such_file.py"]


# -- modules

_ENDINGS = (
    "ations",
    "ation",
    "ings",
    "ing",
    "ions",
    "ion",
    "ies",
    "ers",
    "ors",
    "es",
    "ed",
    "er",
    "or",
    "s",
    "y",
    "e",
)


def stem(word: str) -> str:
    """The word without its ending, so that forms of one word are equal."""
    ending = next(
        (each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= 3), ""
    )
    return word.removesuffix(ending)


def are_confusable(one: str, other: str) -> bool:
    """Whether two module names differ by one letter, by an underscore or by
    the forms of their words."""
    first, second = one.replace("_", ""), other.replace("_", "")
    if first == second or [stem(word) for word in one.split("_")] == [
        stem(word) for word in other.split("_")
    ]:
        return True
    if len(first) == len(second):
        return sum(a != b for a, b in zip(first, second, strict=True)) == 1
    short, long = sorted((first, second), key=len)
    return len(long) - len(short) == 1 and any(
        long[:at] + long[at + 1 :] == short for at in range(len(long))
    )


def names_by_scope(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Scope -> names of its modules and packages. A scope is a package of chalicelib with all that
    is in it, one vendor's package, or a folder of infra."""
    scopes: dict[str, set[str]] = {}
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        depth = (
            len(parts) - 1
            if parts[0] == "infra"
            else 3
            if parts[:2] == ("chalicelib", "providers")
            else 2
        )
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
    [
        ("machinepools", "machine_pools"),
        ("token", "tokens"),
        ("stage", "state"),
        ("record", "recorder"),
    ],
)
def test_confusable_names_are_found(one: str, other: str) -> None:
    assert are_confusable(one, other)


# -- packages


def package_docstrings() -> dict[str, str]:
    """Package of chalicelib -> its docstring."""
    packages = {path.parent.relative_to(ROOT).as_posix() for path in sources("chalicelib")}
    tops = {package: ROOT / package / "__init__.py" for package in packages}
    return {
        package: (ast.get_docstring(ast.parse(top.read_text("utf-8"))) or "")
        if top.is_file()
        else ""
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
    (
        "cherryservers",
        "credentials",
    ): "the vendor's requests carry a bearer token (tokens.py) and no signature",
    (
        "clusterapi",
        "credentials",
    ): "requests go through the management cluster's client, which authenticates them",
    (
        "clusterapi",
        "decoding",
    ): "objects of the Kubernetes API are decoded by the types in models.py alone",
}


def test_five_vendors_have_the_same_modules() -> None:
    vendors = sorted(
        {
            path.parent
            for path in sources("chalicelib/providers")
            if path.parent.name not in ("providers", "kit")
        }
    )
    assert len(vendors) == 5
    missing = {
        (folder.name, name)
        for folder in vendors
        for name in DRAWERS
        if not (folder / f"{name}.py").is_file()
    }
    assert missing == set(WITHOUT_DRAWER)
    declared = {path.stem for path in sources("chalicelib/policy/vendors")} - {
        "__init__",
        "settings",
    }
    assert declared == {folder.name for folder in vendors}
