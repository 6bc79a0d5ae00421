"""No test passes over nothing: one that asserts only inside loops asserts that they have
something to go through.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.source_trees import nodes_of, trees

#: Tests whose loops may be empty for some rows. The list may only become shorter.
EXCEPTIONS = frozenset(
    {
        # documents without such commands are rows too
        ("tests/unit/test_docs.py", "test_docs_python_modules_exist_and_know_their_flags"),
        ("tests/unit/test_docs_commands.py", "test_docs_commands_and_their_flags_exist"),
        (
            "tests/providers/suite/test_suite_observe.py",
            "test_provider_group_has_a_node_template_or_a_reason_for_none",
        ),
        # its innermost loop counts machines, none at first
        (
            "tests/providers/huaweicloud/test_decrease_target.py",
            "test_CCE_DANGER_1_no_change_ever_lets_the_vendor_choose_a_node",
        ),
    }
)
_PASSED_ON = frozenset({"enumerate", "sorted", "list", "tuple", "reversed", "permutations"})
_VIEWS = frozenset({"items", "values", "keys", "split"})
_DEEPEST = 6


def loops_over_nothing(tree: ast.Module) -> Iterator[str]:
    """The names of tests that assert only inside loops which may be empty: over something else than
    a display with elements, a name for one, a table in capitals, or a parameter."""
    tables: dict[str, list[ast.expr]] | None = None
    for function in nodes_of(tree):
        if not (isinstance(function, ast.FunctionDef) and function.name.startswith("test")):
            continue
        loops = list(_loops_of_assertions(function, ()))
        if not loops or () in loops:  # most tests: the values of their names need not be looked for
            continue
        if tables is None:
            tables = _assigned(
                node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)
            )
        values = {**tables, **_assigned(function.body)}
        parameters = {argument.arg for argument in function.args.args}
        if not any(
            all(_is_filled(loop.iter, values, parameters) for loop in around) for around in loops
        ):
            yield function.name


def _assigned(statements: Sequence[ast.stmt] | Iterator[ast.stmt]) -> dict[str, list[ast.expr]]:
    values: dict[str, list[ast.expr]] = {}
    for node in (part for statement in statements for part in ast.walk(statement)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return values


def _loops_of_assertions(
    node: ast.AST, around: tuple[ast.For, ...]
) -> Iterator[tuple[ast.For, ...]]:
    """The loops around each assertion; a block that expects an exception is one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert) or (
            isinstance(child, ast.With) and "raises" in ast.unparse(child.items[0])
        ):
            yield around
        elif not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from _loops_of_assertions(
                child, (*around, child) if isinstance(child, ast.For) else around
            )


def _is_filled(  # noqa: C901, PLR0911, PLR0912 - a case per form
    node: ast.expr, values: Mapping[str, Sequence[ast.expr]], parameters: set[str], deep: int = 0
) -> bool:
    def is_filled(part: ast.expr) -> bool:
        return deep < _DEEPEST and _is_filled(part, values, parameters, deep + 1)

    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(not isinstance(part, ast.Starred) or is_filled(part.value) for part in parts)
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.Constant(value=str() as text):
            return bool(text)
        case ast.Call(func=ast.Name(id="range"), args=[*_, last]):
            words = [part.id for part in ast.walk(last) if isinstance(part, ast.Name)]
            return not any(isinstance(part, ast.Call) for part in ast.walk(last)) and all(
                word.isupper() or word in parameters for word in words
            )
        case ast.Call(func=ast.Name(id="zip"), args=parts, keywords=[*_]):
            return any(is_filled(part) for part in parts)
        case ast.Call(func=ast.Name(id="product") | ast.Attribute(attr="product"), args=parts):
            return all(is_filled(part) for part in parts)
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _PASSED_ON:
            return is_filled(first)
        case ast.Call(func=ast.Attribute(attr=attribute, value=part)) if attribute in _VIEWS:
            return is_filled(part)
        case ast.BinOp(left=left, right=right):
            return is_filled(left) or is_filled(right)
        case ast.IfExp(body=body, orelse=orelse):
            return is_filled(body) and is_filled(orelse)
        case (
            ast.ListComp(generators=parts)
            | ast.GeneratorExp(generators=parts)
            | ast.SetComp(generators=parts)
        ):
            return all(not part.ifs and is_filled(part.iter) for part in parts)
        case ast.Subscript(value=part):
            return isinstance(part, ast.Name) and part.id.isupper()
        case ast.Name(id=name):
            own = values.get(name, ())
            return (
                name in parameters
                or name.isupper()
                or (all(map(is_filled, own)) if own else name[:1].isupper())
            )
        case ast.Attribute(attr=attribute):
            return attribute.isupper()
    return False


def test_loops_that_assert_have_something_to_go_through() -> None:
    found = {(path, name) for path, tree in trees("tests") for name in loops_over_nothing(tree)}
    assert found - EXCEPTIONS == set(), "assert the length of what the loop goes through"
    assert EXCEPTIONS - found == set(), "no longer an exception: remove it from the list"


@pytest.mark.parametrize(
    ("body", "may_be_empty"),
    [
        ("for x in f():\n  assert x", True),
        ("y = f()\n for x in y.items():\n  assert x", True),
        ("for x in (1, 2):\n  for y in x:\n   assert y", True),
        ("for x in f():\n  with pytest.raises(E):\n   g(x)", True),
        ("for x in range(len(f())):\n  assert x", True),
        ("for x in (1, 2):\n  assert x", False),
        ("y = f()\n assert y\n for x in y:\n  assert x", False),
        ("for x in TABLE.values():\n  assert x", False),
        ("for x in range(3):\n  assert x", False),
        ("for x in given:\n  assert x", False),
        ("for x in zip((1,), f(), strict=True):\n  assert x", False),
        ("f()", False),
    ],
)
def test_loop_check_detects_a_loop_over_nothing(body: str, may_be_empty: bool) -> None:
    found = list(loops_over_nothing(ast.parse(f"def test_a(given):\n {body}\n")))
    assert found == (["test_a"] if may_be_empty else [])
