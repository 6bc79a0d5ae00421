"""Mutants: small faults in the code of a module, drawn by lot, and the syntax tree
that contains one of them.

Not drawn, because no behaviour of the program shows them: docstrings, annotations, decorators,
assertions (they narrow types), blocks for type checkers, `__all__`, `__slots__`, `frozen=True`, and
prose (a text with a space in it).
"""

from __future__ import annotations

import ast
import copy
import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SKIPPED_FIELDS = frozenset(
    {"annotation", "returns", "decorator_list", "format_spec", "type_params"}
)
_SKIPPED_CALLS = frozenset({"TypeVar", "ParamSpec", "NewType", "cast", "overload"})
_SKIPPED_TARGETS = frozenset({"__all__", "__slots__", "__match_args__"})
_LONGEST_TEXT = 160
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One fault. `function` is the outermost function or class around it, "" in the body of the
    module; in_body: within the code of a function, which can be replaced after import. `node` and
    `variant` find the place in the tree."""

    file: str
    line: int
    function: str
    in_body: bool
    operator: str
    before: str
    after: str
    node: int
    variant: int

    @property
    def where(self) -> str:
        """The function with its file, as the table of reached functions names it."""
        return f"{self.file}:{self.function}"

    def __str__(self) -> str:
        """The line of the report."""
        return (
            f"{self.file}:{self.line} {self.function}: {self.operator}: {self.before}  ->  "
            f"{self.after}"
        )


@dataclass(frozen=True)
class _Place:
    node: ast.AST
    parent: ast.AST | None
    function: str
    in_body: bool


def mutants_of(file: str, source: str, lines: range | None = None) -> list[Mutant]:
    """Every mutant of a module, or those that begin on these lines. Raises SyntaxError."""
    found: list[Mutant] = []
    for index, place in enumerate(_places(source)):
        node = place.node
        line = getattr(node.target if isinstance(node, ast.comprehension) else node, "lineno", 0)
        if lines is not None and line not in lines:
            continue
        for variant in range(len(_changes(place))):
            operator, before, after = _texts(place, variant)
            if before != after:
                found.append(
                    Mutant(
                        file,
                        line,
                        place.function,
                        place.in_body,
                        operator,
                        before,
                        after,
                        index,
                        variant,
                    )
                )
    return found


def drawn(root: Path, folders: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """`count` different mutants: the lot falls on a line of the folders, then on an
    operator, then on a place."""
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    lines = [
        (path, number)
        for path in paths
        for number in range(1, len(path.read_text("utf-8").split("\n")) + 1)
    ]
    lot, found = random.Random(seed), dict[Mutant, None]()
    while len(found) < count:
        path, line = lot.choice(lines)
        found_here = mutants_of(
            path.relative_to(root).as_posix(), path.read_text("utf-8"), range(line, line + 1)
        )
        if found_here:
            operator = lot.choice(sorted({mutant.operator for mutant in found_here}))
            found[lot.choice([mutant for mutant in found_here if mutant.operator == operator])] = (
                None
            )
    return list(found)


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The module with the fault in it; every line keeps its number."""
    places = _places(source)
    _, change = _changes(places[mutant.node])[mutant.variant]
    change()
    tree = places[0].node
    assert isinstance(tree, ast.Module)
    return ast.fix_missing_locations(tree)


def equivalents(path: Path) -> dict[tuple[str, ...], str]:
    """The mutants that no test can notice, without line numbers, with the reason for each."""
    rows = tomllib.loads(path.read_text("utf-8")).get("equivalent", [])
    return {
        (row["file"], row["function"], row["operator"], row["before"], row["after"]): str(
            row["reason"]
        )
        for row in rows
    }


def identity(mutant: Mutant) -> tuple[str, ...]:
    """What the list of equivalents knows a mutant by."""
    return mutant.file, mutant.function, mutant.operator, mutant.before, mutant.after


def _places(source: str) -> list[_Place]:
    return list(_walk(_Place(ast.parse(source), None, "", in_body=False)))


def _walk(place: _Place) -> Iterator[_Place]:
    yield place
    node = place.node
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS:
            continue
        function, in_body = place.function, place.in_body
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and not in_body:
            function = f"{function}.{node.name}".lstrip(".")
            in_body = field == "body" and isinstance(node, _FUNCTIONS)
        is_prose = isinstance(node, ast.JoinedStr) and any(_has_space(part) for part in node.values)
        for child in value if isinstance(value, list) else [value]:
            if (
                isinstance(child, ast.AST)
                and not _is_skipped(child)
                and not (is_prose and isinstance(child, ast.Constant))
            ):
                yield from _walk(_Place(child, node, function, in_body))


def _has_space(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and " " in str(part.value)


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case (
            ast.Assert()
            | ast.Expr(value=ast.Constant())
            | ast.If(test=ast.Name(id="TYPE_CHECKING"))
        ):
            return True
        case ast.Call(func=ast.Name(id=name)) if name in _SKIPPED_CALLS:
            return True
        case ast.keyword(arg="frozen" | "gc"):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) if name in _SKIPPED_TARGETS:
            return True
        case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple()):
            return True
    return False


def _texts(place: _Place, variant: int) -> tuple[str, str, str]:
    """The operator, and the text around the place before and after. The tree stays as it is: the
    change is made in a copy of what is shown."""
    copied = _copied(place)
    operator, change = _changes(copied)[variant]
    shown = copied.node
    if isinstance(shown, ast.Constant) and isinstance(copied.parent, ast.expr | ast.keyword):
        shown = copied.parent
    before = _unparsed(shown)
    if operator == "removed call":
        after = "nothing"
    else:
        change()
        after = _unparsed(shown)
    return operator, _short(before, after), _short(after, before)


def _copied(place: _Place) -> _Place:
    """The place in a tree of its own, as far as changes and texts reach."""
    node, parent = place.node, place.parent
    if isinstance(node, ast.If | ast.While):  # a change replaces the condition
        return replace(place, node=copy.copy(node))
    if isinstance(node, ast.Constant) and isinstance(parent, ast.expr | ast.keyword):
        copies: dict[int, Any] = {}
        parent = copy.deepcopy(parent, copies)
        return replace(place, node=copies[id(node)], parent=parent)
    return replace(place, node=copy.deepcopy(node))


def _unparsed(shown: ast.AST) -> str:
    """The text of a node; of a block with a condition, the condition."""
    return ast.unparse(shown.test if isinstance(shown, ast.If | ast.While) else shown)


def _short(text: str, other: str) -> str:
    """At most 160 characters, from shortly before the first difference."""
    if len(text) <= _LONGEST_TEXT:
        return text
    same = next(
        (index for index, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), 0
    )
    start = max(0, same - _LONGEST_TEXT // 2)
    return ("…" if start else "") + text[start : start + _LONGEST_TEXT]


def _changes(place: _Place) -> list[tuple[str, Callable[[], None]]]:  # noqa: C901, PLR0912 - a case per form
    """The operators that apply to a node: a name, and what changes the tree in place."""
    node, parent = place.node, place.parent
    found: list[tuple[str, Callable[[], None]]] = []

    def add(operator: str, change: Callable[..., Any], *arguments: object) -> None:
        found.append((operator, lambda: change(*arguments)))

    match node:
        case ast.Compare():
            for index, comparison in enumerate(node.ops):
                add("comparison", node.ops.__setitem__, index, _COMPARISONS[type(comparison)]())
        case ast.If() | ast.While() | ast.IfExp():
            add("negation", setattr, node, "test", _negated(node.test))
        case ast.comprehension():
            for index, condition in enumerate(node.ifs):
                add("negation", node.ifs.__setitem__, index, _negated(condition))
        case ast.BoolOp():
            add(
                "and/or",
                setattr,
                node,
                "op",
                ast.Or() if isinstance(node.op, ast.And) else ast.And(),
            )
        case ast.Constant(value=bool() as flag):
            add("constant", setattr, node, "value", not flag)
        case ast.Constant(value=int() | float() as number):
            add("constant", setattr, node, "value", number + 1)
        case ast.Constant(value=str() as text) if " " not in text:
            add("constant", setattr, node, "value", f"{text}x")
        case ast.Constant(value=bytes() as data):
            add("constant", setattr, node, "value", data + b"x")
        case ast.Expr(value=ast.Call()) if parent is not None:
            add("removed call", _remove, parent, node)
        case ast.Call():
            for index, (one, two) in enumerate(zip(node.args, node.args[1:], strict=False)):
                if not isinstance(one, ast.Starred) and not isinstance(two, ast.Starred):
                    add(
                        "swapped arguments",
                        node.args.__setitem__,
                        slice(index, index + 2),
                        [two, one],
                    )
            for first, second in zip(node.keywords, node.keywords[1:], strict=False):
                if first.arg and second.arg:
                    add("swapped arguments", _swap_values, first, second)
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            add("returned nothing", setattr, node, "value", ast.Constant(None))
        case ast.Tuple(ctx=ast.Load()) | ast.List(ctx=ast.Load()) | ast.Set():
            if not isinstance(parent, ast.Subscript) and (
                len(node.elts) > 1 or not isinstance(node, ast.Set)
            ):
                for index in range(len(node.elts)):
                    add("dropped element", node.elts.__delitem__, index)
        case ast.Dict():
            for index in range(len(node.keys)):
                add("dropped element", _drop_key, node, index)
    return found


def _negated(condition: ast.expr) -> ast.expr:
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    return ast.UnaryOp(ast.Not(), condition)


def _remove(parent: ast.AST, statement: ast.stmt) -> None:
    for _, block in ast.iter_fields(parent):
        if isinstance(block, list) and statement in block:
            block[block.index(statement)] = ast.copy_location(ast.Pass(), statement)


def _swap_values(one: ast.keyword, two: ast.keyword) -> None:
    one.value, two.value = two.value, one.value


def _drop_key(node: ast.Dict, index: int) -> None:
    del node.keys[index], node.values[index]
