"""Syntax trees and imports of the repository's Python files, for the tests of its own rules."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[1]


def sources(*folders: str) -> list[Path]:
    """The Python files of these folders of the repository (or single files), sorted."""
    found: list[Path] = []
    for folder in folders:
        place = ROOT / folder
        found += [place] if place.is_file() else place.rglob("*.py")
    return sorted(found)


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Path within the repository and syntax tree of each file."""
    for path in sources(*folders):
        yield path.relative_to(ROOT).as_posix(), parsed(path)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file; several rules look at the same one."""
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree, as from ast.walk, which takes ten times as long."""
    return tuple(ast.walk(tree))


_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


_SIGN = re.compile(r"\w+|[^\w\s]")


@cache
def size_of(path: Path) -> int:
    """The code size of a file; several rules look at the same one."""
    return _code_size(path.read_text("utf-8"), nodes_of(parsed(path)))


def is_larger(path: Path, most: int) -> bool:
    """Whether a file has more code than that. Most files have fewer words and signs, comments
    included, so that their tokens need not be counted."""
    return len(_SIGN.findall(path.read_text("utf-8"))) > most and size_of(path) > most


def code_size(source: str) -> int:
    """Number of tokens of a file's code, without comments, docstrings and layout.

    It barely depends on the width of lines, unlike the number of lines. A string is one token, also
    an f-string, which Python 3.12 and later divide.
    """
    return _code_size(source, ast.walk(ast.parse(source)))


def _code_size(source: str, nodes: Iterable[ast.AST]) -> int:
    docstrings = {node.body[0].lineno for node in nodes if _has_docstring(node)}
    size = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_END":
            depth -= 1
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if not depth and not is_docstring and kind != "FSTRING_END" and token.type not in _LAYOUT:
            size += 1
        if kind == "FSTRING_START":
            depth += 1
    return size


def _has_docstring(
    node: ast.AST,
) -> TypeGuard[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None


def module_name(path: str) -> str:
    """The dotted name of a file of the repository."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each absolute import at any depth, type-only ones included: the module, and the name taken
    from it ("" of `import module`)."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.module, alias.name) for alias in node.names)


def import_graph(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> the modules of the mapping that it imports; `from package import module` is
    an import of the module."""
    graph: dict[str, set[str]] = {}
    for name, tree in modules.items():
        taken = (
            f"{module}.{part}" if f"{module}.{part}" in modules else module
            for module, part in imported_names(tree)
        )
        graph[name] = {each for each in taken if each in modules and each != name}
    return graph


def circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Sets of modules that reach each other, sorted."""
    graph = _without_ends(graph)
    reach = {name: _reachable(name, graph) for name in graph}
    found = {
        tuple(sorted({name} | {other for other in reach[name] if name in reach[other]}))
        for name in graph
    }
    return [list(each) for each in sorted(found) if len(each) > 1]


def _without_ends(graph: Mapping[str, Set[str]]) -> Mapping[str, Set[str]]:
    """The graph without modules that import none of it or that none of
    it imports: they are in no circle."""
    while True:
        imported = set[str]().union(*graph.values())
        inner = {
            name
            for name, others in graph.items()
            if name in imported and not others.isdisjoint(graph)
        }
        if len(inner) == len(graph):
            return graph
        graph = {name: graph[name] & inner for name in inner}


def _reachable(start: str, graph: Mapping[str, Set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = graph[ahead.pop()] - seen
        seen |= fresh
        ahead += fresh
    return seen
