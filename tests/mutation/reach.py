"""Which tests can notice a mutant: those that were measured to call its function, or
to read what it declares.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.mutation.mutants import Mutant
from tests.source_trees import module_name

#: The part of the CPU seconds per mutant that tests of units and contracts may use.
_UNITS = 0.7
_UNIT_FOLDERS = ("tests/unit/", "tests/providers/", "tests/contract/")
#: Looks at the fields of all classes.
_EVERY_FIELD = "tests/unit/test_fields.py"
_FILES_PER_IMPORT = 30
_DEPTH = 4


class Reach:
    """What was measured of the tests: by test its CPU seconds and the functions
    ("file:name") that it calls.

    The file has a line per measured test file, so that an interrupted run loses one
    file; a later line counts.
    """

    def __init__(self, state: Path, limit: float) -> None:
        """limit: CPU seconds of tests per mutant."""
        self._path, self._limit = state / "reach.jsonl", limit
        self.seconds: dict[str, float] = {}
        self.functions: dict[str, list[str]] = {}
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        self._measured = {row["file"]: row for row in map(json.loads, lines)}
        for row in self._measured.values():
            if Path(row["file"]).exists():
                for test, (seconds, numbers) in row["tests"].items():
                    self.seconds[test], self.functions[test] = (
                        seconds,
                        [row["functions"][number] for number in numbers],
                    )

    def knows(self, path: Path) -> bool:
        """Whether the test file, as it is now, was measured."""
        return (
            str(path) in self._measured
            and self._measured[str(path)]["version"] == path.stat().st_mtime_ns
        )

    def add(self, path: Path, tests: Mapping[str, tuple[float, Collection[str]]]) -> None:
        """Append what was measured of a test file."""
        names = sorted({name for _, called in tests.values() for name in called})
        at = {name: number for number, name in enumerate(names)}
        rows = {
            test: [round(seconds, 4), [at[name] for name in called]]
            for test, (seconds, called) in tests.items()
        }
        line = {
            "file": str(path),
            "version": path.stat().st_mtime_ns,
            "functions": names,
            "tests": rows,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def callers(self, functions: Iterable[str]) -> list[str]:
        """The tests that call one of these functions, the best first: units before worlds, and of
        the units those with the fewest functions."""
        names = set(functions)
        tests = [test for test, called in self.functions.items() if not names.isdisjoint(called)]
        return sorted(tests, key=lambda test: (*self._cost(test), test))

    def affordable(self, tests: Iterable[str]) -> list[str]:
        """The tests that fit into the limits of CPU seconds, those of one file together."""
        total, files = 0.0, defaultdict[str, list[str]](list)
        for test in dict.fromkeys(tests):
            limit = self._limit * (_UNITS if test.startswith(_UNIT_FOLDERS) else 1.0)
            if total + self.seconds[test] <= limit:
                total += self.seconds[test]
                files[test.partition("::")[0]].append(test)
        return list(chain.from_iterable(files.values()))

    def _cost(self, test: str) -> tuple[bool, float]:
        is_unit = test.startswith(_UNIT_FOLDERS)
        return not is_unit, len(self.functions[test]) if is_unit else self.seconds[test]


@dataclass(frozen=True)
class _Part:
    """A function (`reached` is its name in the table of reached functions, `function` that of a
    public function outside of classes) or a statement that declares names."""

    file: str
    reached: str
    function: str
    names: frozenset[str]
    words: frozenset[str]


class Declarations:
    """The tests that read a declaration: they, or functions that they call, mention its name, or
    the name of another declaration that mentions it."""

    def __init__(self, root: Path, paths: Sequence[Path], reach: Reach) -> None:
        self._root, self._reach = root, reach
        trees = {
            path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths
        }
        self._parts = [part for file, tree in trees.items() for part in _parts(file, tree.body)]
        files = {test.partition("::")[0] for test in reach.seconds}
        self._test_words = {
            file: _words(ast.parse((root / file).read_text("utf-8"))) for file in sorted(files)
        }
        self._imports = {file: _words(tree) for file, tree in trees.items()}

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Those of the nearest names first; at last those of the module and of the modules that
        import it. Of at most 30 files, for they are collected anew."""
        module = module_name(mutant.file).rpartition(".")[2]
        near = [file for file, words in self._imports.items() if module in words]
        chosen = dict.fromkeys(
            [
                *(test for test in self._reach.seconds if test.startswith(_EVERY_FIELD)),
                *self._mentioned(mutant),
            ]
        )
        for files in ([mutant.file], near):
            reached = [part.reached for part in self._parts if part.reached and part.file in files]
            chosen |= dict.fromkeys(self._reach.callers(reached))
        ranked = dict.fromkeys(test.partition("::")[0] for test in chosen)
        first = set(list(ranked)[:_FILES_PER_IMPORT])
        return self._reach.affordable(test for test in chosen if test.partition("::")[0] in first)

    def _mentioned(self, mutant: Mutant) -> Iterator[str]:
        names = _declared(ast.parse((self._root / mutant.file).read_text("utf-8")), mutant)
        known: set[str] = set()
        for _ in range(_DEPTH):
            known |= names
            parts = [
                part
                for part in self._parts
                if any(
                    name in part.words and (name[0] != "_" or part.file == mutant.file)
                    for name in names
                )
            ]
            shown = names | {part.function for part in parts if part.function}
            by_file = {
                file for file, words in self._test_words.items() if not shown.isdisjoint(words)
            }
            mentioning = [
                test for test in self._reach.seconds if test.partition("::")[0] in by_file
            ]
            yield from sorted(
                mentioning, key=lambda test: (len(self._reach.functions[test]), test)
            )[:100]
            yield from self._reach.callers(part.reached for part in parts if part.reached)
            names = {name for part in parts for name in part.names} - known


def _declared(tree: ast.Module, mutant: Mutant) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or 0):
            return set(_names(node)) | {mutant.function.rpartition(".")[2]} - {""}
    return set()


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (
            part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
        )


def _parts(file: str, body: Sequence[ast.stmt], owner: str = "") -> Iterator[_Part]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _parts(file, node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            public = "" if owner or node.name.startswith("_") else node.name
            yield _Part(file, f"{file}:{owner}{node.name}", public, frozenset(), _words(node))
        else:
            names = {owner.partition(".")[0]} if owner else set(_names(node))
            yield _Part(file, "", "", frozenset(names), _words(node))


def _words(tree: ast.AST) -> frozenset[str]:
    words = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word):
                words.add(word)
            case ast.alias(name=word):
                words |= {word, word.rpartition(".")[2]}
            case ast.ImportFrom(module=str(word)):
                words.add(word.rpartition(".")[2])
    return frozenset(words)
