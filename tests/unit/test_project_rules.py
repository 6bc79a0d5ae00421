"""Project rules that no linter checks: module sizes, readers of the mode, importers of
app.py, no hidden state.

Each rule is a function over source text and is tested with text that breaks it, which proves that
it can find a violation.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.source_trees import (
    ROOT,
    code_size,
    import_graph,
    imported_names,
    is_larger,
    module_name,
    nodes_of,
    size_of,
    sources,
    trees,
)

#: The most tokens of code of a file, by its top folder.
LARGEST = {"chalicelib": 6_000, "infra": 6_000, "tests": 7_500}
#: A module that only one other uses, and that has fewer tokens of code, belongs into the other.
SMALLEST_ALONE = 400
#: Rows of CONTRIBUTING's table of subjects that have a module each.
_ROWS = ("chalicelib/cli/commands/", "chalicelib/providers/", "chalicelib/functions/")
#: Smaller modules with one user that stand alone. The list may only become shorter.
ALONE: frozenset[str] = frozenset({"chalicelib/net/xray_daemon.py"})
#: How far the table in pyproject.toml may be above a package before its number is lowered.
_ROOM = 3_000

#: : Calls that create a mutable value.
_MAKERS = frozenset(
    {"dict", "list", "set", "bytearray", "defaultdict", "OrderedDict", "Counter", "deque"}
)
_DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
#: : Methods that change their object.
_CHANGERS = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    }
)


# -- sizes


def sizes(*folders: str) -> dict[str, int]:
    """Tokens of code of each file, by its path within the repository."""
    return {path.relative_to(ROOT).as_posix(): size_of(path) for path in sources(*folders)}


@pytest.mark.parametrize("folder", sorted(LARGEST))
def test_no_module_is_too_large(folder: str) -> None:
    files = sources(folder)
    assert len(files) > 100
    assert [path for path in files if is_larger(path, LARGEST[folder])] == []


def test_larger_module_is_recognized(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""Words and words."""\n\na = 1  # more\n', "utf-8")
    assert [is_larger(module, most) for most in (1, 2, 3, 10, 100)] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("source", "size"),
    [
        ("a = 1\n", 3),
        ('"""Words."""\n\n# why\na = (\n    1,\n)  # more\n', 6),
        ('def f():\n    """Words."""\n    return "a word"\n', 7),
        ('a = f"{b} and {c + 1}"\n', 3),
        ('a = "b" "c"\n', 4),
    ],
)
def test_size_of_code_counts_neither_words_nor_layout(source: str, size: int) -> None:
    assert code_size(source) == size


def users_by_module(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> the modules that import it."""
    users: dict[str, set[str]] = {name: set() for name in modules}
    for name, imported_modules in import_graph(modules).items():
        for module in imported_modules:
            users[module].add(name)
    return users


def test_small_module_with_one_user_belongs_to_its_user() -> None:
    paths = {module_name(path): path for path, _ in trees("chalicelib")}
    users = users_by_module(
        {module_name(path): tree for path, tree in trees("app.py", "chalicelib")}
    )
    small = {path for path, size in sizes("chalicelib").items() if size < SMALLEST_ALONE}
    alone = {
        path
        for module, path in paths.items()
        if path in small
        and len(users[module]) == 1
        and not path.endswith("__init__.py")
        and not path.startswith(_ROWS)
    }
    assert alone == ALONE, "fold the module into its user; if the list has one too many, shorten it"


def test_users_of_a_module_are_counted() -> None:
    modules = {"a": ast.parse(""), "b": ast.parse("import a"), "c": ast.parse("from a import x")}
    assert users_by_module(modules) == {"a": {"b", "c"}, "b": set(), "c": set()}


def package_sizes(files: Mapping[str, int]) -> dict[str, int]:
    """Tokens of code of each package within chalicelib; "." has the files that are in none."""
    total: Counter[str] = Counter()
    for path, size in files.items():
        total["/".join(path.split("/")[1:-1][:1]) or "."] += size
    return dict(total)


def size_faults(table: Mapping[str, int], total: Mapping[str, int]) -> list[str]:
    """What is wrong with the agreed sizes of packages, and what to do about it."""
    faults = [f"{name}: has no number in the table" for name in sorted(total.keys() - table.keys())]
    faults += [
        f"{name}: is no package, remove its number" for name in sorted(table.keys() - total.keys())
    ]
    for name in sorted(table.keys() & total.keys()):
        size, most = total[name], table[name]
        if size > most:
            faults.append(
                f"{name}: {size} tokens, {most} agreed; raise it in the same commit, the message "
                "says why"
            )
        elif most > size + _ROOM:
            faults.append(f"{name}: {size} tokens, {most} agreed; lower it")
    return faults


def test_packages_have_the_size_agreed() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["outscaler"][
        "tokens"
    ]
    assert size_faults(table, package_sizes(sizes("chalicelib"))) == []


def test_size_check_detects_growth_shrinkage_and_missing_rows() -> None:
    total = package_sizes(
        {
            "chalicelib/a/b.py": 10,
            "chalicelib/a/c/d.py": 5,
            "chalicelib/e.py": 7,
            "chalicelib/f/g.py": 1,
        }
    )
    assert total == {"a": 15, ".": 7, "f": 1}
    faults = size_faults({"a": 14, ".": 4_000, "gone": 5}, total)
    assert [fault.partition(":")[0] for fault in faults] == ["f", "gone", ".", "a"]
    assert size_faults({"a": 15, ".": 1_000, "f": 1}, total) == []


# -- the mode

#: : The word Mode: where it is declared, where the document's text is parsed into
#: one, and where it is read.
_MAY_SAY_MODE = (
    "chalicelib/policy/settings/cluster_policy.py",
    "chalicelib/policy/",
    "chalicelib/runtime/mode_guard.py",
)
_READS_THE_MODE = "chalicelib/runtime/mode_guard.py"


def reads_of_mode(tree: ast.Module) -> list[str]:
    """Finds `x.mode` on any x but a policy's `consolidation` and a managed `pool`, which have a
    mode of their own, and getattr(x, "mode")."""
    found = []
    for node in nodes_of(tree):
        by_attribute = (
            isinstance(node, ast.Attribute)
            and node.attr == "mode"
            and not ast.unparse(node.value).endswith(("consolidation", "pool"))
        )
        by_name = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and any(isinstance(word, ast.Constant) and word.value == "mode" for word in node.args)
        )
        if by_attribute or by_name:
            found.append(ast.unparse(node))
    return found


def uses_of_mode_type(tree: ast.Module) -> list[str]:
    """Finds imports and uses of the enum."""
    names = [
        alias.name
        for node in nodes_of(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    names += [node.id for node in nodes_of(tree) if isinstance(node, ast.Name)]
    names += [node.attr for node in nodes_of(tree) if isinstance(node, ast.Attribute)]
    return [name for name in names if name == "Mode"]


def test_only_the_mode_guard_reads_the_mode() -> None:
    readers = {name for name, tree in trees("app.py", "chalicelib", "infra") if reads_of_mode(tree)}
    assert readers == {_READS_THE_MODE}
    speakers = {
        name for name, tree in trees("app.py", "chalicelib", "infra") if uses_of_mode_type(tree)
    }
    assert [name for name in sorted(speakers) if not name.startswith(_MAY_SAY_MODE)] == []


@pytest.mark.parametrize(
    "source", ["policy.mode", "before.policy.mode == 1", "getattr(policy, 'mode')"]
)
def test_mode_check_detects_a_read_of_the_mode(source: str) -> None:
    assert reads_of_mode(ast.parse(source))


def test_mode_check_lets_the_mode_of_consolidation_be_read() -> None:
    assert reads_of_mode(ast.parse("policy.consolidation.mode is consolidation.mode")) == []


# -- app.py


def imported(tree: ast.Module) -> set[str]:
    """Returns the top-level names that a module imports, at any depth of the code."""
    names: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


def test_deployed_code_never_imports_app() -> None:
    """Lambda enters the blueprints directly; app.py would load every route in every function."""
    assert [name for name, tree in trees("app.py", "chalicelib") if "app" in imported(tree)] == []
    assert "app" in imported(ast.parse("def f():\n    from app import app"))


def test_deployed_code_imports_neither_the_emulation_nor_the_tests() -> None:
    """Except the `chalice` command in the repository, which runs the whole deployment."""
    outside = [
        (name, module)
        for name, tree in trees("app.py", "chalicelib")
        for module, _ in imported_names(tree)
        if module.partition(".")[0] in {"infra", "tests"}
    ]
    assert outside == [("app.py", "infra.aws.deploy.chalice_command")]


# -- state

#: : The only place of a process that keeps state (its docstring says why).
_THE_CELL = ("chalicelib/runtime/runtime.py", "_Cell.runtime")


def module_state(tree: ast.Module) -> list[str]:
    """Returns the expressions with which a module could keep state between
    two calls, as source text.

    A table is allowed: a dict, list or set bound once at module level to a NAME_IN_CAPITALS (or
    __all__) which nothing in the module changes. Refused: other names for such values, a changed
    table, `global`, and an attribute set on a class from outside the class. Memoised pure functions
    (lru_cache) are not state: they return the same without it.
    """
    tables: set[str] = set()
    found: list[str] = []
    for node in tree.body:
        for name, value in _bound(node):
            if not _is_mutable(value):
                continue
            if name in tables or not (name == "__all__" or name.strip("_").isupper()):
                found.append(ast.unparse(node))
            tables.add(name)
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    found += [
        ast.unparse(inner)
        for inner in nodes_of(tree)
        if isinstance(inner, ast.Global) or _changes(inner, tables) or _sets_on(inner, classes)
    ]
    return found


def _bound(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
    elif (
        isinstance(node, ast.AnnAssign)
        and node.value is not None
        and isinstance(node.target, ast.Name)
    ):
        yield node.target.id, node.value


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        name = (
            value.func.attr
            if isinstance(value.func, ast.Attribute)
            else getattr(value.func, "id", "")
        )
        return name in _MAKERS
    return isinstance(value, _DISPLAYS)


def _changes(node: ast.AST, tables: set[str]) -> bool:
    """Finds TABLE[x] = …, del TABLE[x], TABLE |= …, TABLE.append(…)."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return isinstance(node.value, ast.Name) and node.value.id in tables
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name) and node.target.id in tables
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CHANGERS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in tables
    )


def _sets_on(node: ast.AST, classes: set[str]) -> bool:
    """Finds Class.attribute = …"""
    targets: Iterable[ast.expr] = ()
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    return any(
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id in classes
        for target in targets
    )


def test_modules_keep_no_state() -> None:
    found = [(name, text) for name, tree in trees("chalicelib") for text in module_state(tree)]
    place, cell = _THE_CELL
    assert [
        each for each in found if not (each[0] == place and each[1].startswith(f"{cell} = "))
    ] == []
    assert found, "the one cell should have been seen"


@pytest.mark.parametrize(
    "source",
    [
        "cache = {}",
        "seen: set[str] = set()",
        "latest = collections.deque()",
        "TABLE = {}\ndef f():\n    TABLE['a'] = 1",
        "TABLE = []\ndef f():\n    TABLE.append(1)",
        "TABLE = {}\nTABLE = {}",
        "TABLE = {}\ndel TABLE['a']",
        "TABLE = set()\ndef f():\n    global TABLE",
        "class Kept:\n    value = None\ndef f():\n    Kept.value = 1",
    ],
)
def test_module_state_check_detects_state(source: str) -> None:
    assert module_state(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "TABLE = {'a': 1}\n_OTHER: dict[str, int] = {k: v for k, v in TABLE.items()}",
        "__all__ = ['f']",
        "NAMES = ('a', 'b')\nlimit = frozenset({1})",
        "def f():\n    seen = {}\n    seen['a'] = 1\n    return seen",
        "class A:\n    def f(self):\n        self.x = {}",
    ],
)
def test_module_state_check_accepts_tables_and_locals(source: str) -> None:
    assert module_state(ast.parse(source)) == []
