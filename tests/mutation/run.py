"""Mutation testing: draws faults by lot and reports those that no test notices.

    python -m tests.mutation.run --seed 30 --count 150      draw, run, and keep the result in build/mutants/
    python -m tests.mutation.run --living                   only those of the last run that lived
    python -m tests.mutation.run --at chalicelib/plan/repair.py:40-60

One process collects the tests once and measures which functions each test calls (kept in build/mutants/ per test file).
For each mutant it forks, replaces the code of the function, and runs the tests that call it, those that call the fewest
functions first. A mutant outside of functions (tables, fields, defaults) needs a fresh import: a process that has
imported nothing yet forks, and the import of that one module gives the mutated code. Two processes run at a time.
A limit of CPU time ends a mutant that loops; one that waits for ever is ended when it used no CPU for a minute.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import gc
import importlib
import importlib.machinery
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutation.mutants import Mutant, drawn, equivalents, identity, mutants_of, mutated
from tests.source_trees import module_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("plan", "operations", "store", "providers", "reconciler", "dispatch", "handlers", "policy")
#: The tests of the repository's own rules read source texts and kill no mutant.
TESTS = ("tests/unit", "tests/contract")
UNUSED_TESTS = tuple(
    f"--ignore=tests/unit/{name}"
    for name in (
        *("release", "demo", "test_asserting_loops.py", "test_contracts.py", "test_locks.py", "test_names.py"),
        *("test_project_rules.py", "test_references.py", "test_unused_code.py", "test_version.py"),
    )
)
PROCESSES = 2
#: CPU seconds of tests per mutant, and what a mutant may use of it: so many times, and so many seconds for the imports.
TESTS_PER_MUTANT = 10.0
_SLOWER, _IMPORTS = 4, 40
_FILES_PER_IMPORT = 10
_IDLE = 60.0
KILLED, LIVED, TIMEOUT, NOT_APPLICABLE = "killed", "lived", "timeout", "not applicable"
_CODES = {0: LIVED, 1: KILLED}
_FRESH = 75  # the exit code of a mutant that needs a fresh import
#: Functions by path, name and first line.
LiveFunctions = dict[tuple[str, str, int], list[FunctionType]]


class Reach:
    """What was measured of the tests: by test its CPU seconds and the functions ("file:name") that it calls.

    The file has a line per measured test file, so that an interrupted run loses one file; a later line counts.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / "reach.jsonl"
        self.seconds: dict[str, float] = {}
        self.functions: dict[str, list[str]] = {}
        self._versions: dict[str, int] = {}
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        for row in map(json.loads, lines):
            self._versions[row["file"]] = row["version"]
            for test, (seconds, numbers) in row["tests"].items():
                self.seconds[test], self.functions[test] = seconds, [row["functions"][number] for number in numbers]

    def is_known(self, item: pytest.Item) -> bool:
        """Whether the test passed when its file, as it is now, was measured."""
        return item.nodeid in self.seconds and self._versions[str(item.path)] == item.path.stat().st_mtime_ns

    def add(self, path: Path, tests: Mapping[str, tuple[float, Sequence[str]]]) -> None:
        """Append what was measured of a test file."""
        names = sorted({name for _, called in tests.values() for name in called})
        at = {name: number for number, name in enumerate(names)}
        rows = {test: [round(seconds, 4), [at[name] for name in called]] for test, (seconds, called) in tests.items()}
        line = {"file": str(path), "version": path.stat().st_mtime_ns, "functions": names, "tests": rows}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def tests_of(self, functions: Iterable[str], limit: float, among: Container[str] | None = None) -> list[str]:
        """The tests that call one of these functions: those with the fewest functions first, `limit` CPU seconds."""
        names = set(functions)
        tests = [test for test, called in self.functions.items() if not names.isdisjoint(called)]
        total, chosen = 0.0, []
        for test in sorted(tests, key=lambda test: (len(self.functions[test]), test)):
            if total + self.seconds[test] <= limit and (among is None or test in among):
                total += self.seconds[test]
                chosen.append(test)
        return chosen


# -- processes


def in_forks(jobs: Sequence[Callable[[], int]], limits: Sequence[float]) -> Iterator[tuple[int, str]]:
    """Run each job in a forked process within a limit of CPU seconds; returns its index and what came of it."""
    ahead, running = list(range(len(jobs))), dict[int, tuple[int, float, float]]()  # pid -> job, CPU seconds, since
    while ahead or running:
        while ahead and len(running) < PROCESSES:
            job = ahead.pop(0)
            running[_forked(jobs[job], limits[job])] = job, 0.0, time.monotonic()
        time.sleep(0.02)
        for pid, (job, used, since) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del running[pid]
                _end_group(pid)
                code = os.waitstatus_to_exitcode(status)
                yield job, TIMEOUT if code < 0 else _CODES.get(code, f"error {code}")
            elif (now_used := _cpu_seconds(pid)) > used:
                running[pid] = job, now_used, time.monotonic()
            elif time.monotonic() - since > _IDLE:
                _end_group(pid)


def _forked(job: Callable[[], int], limit: float) -> int:
    if pid := os.fork():
        return pid
    code = 70
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + int(limit) + 1, used + int(limit) + 3))
        code = job()
    except Exception:
        _tell(traceback.format_exc())
    finally:
        os._exit(code)


def _end_group(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


# -- the code of functions


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects of the functions of a module and of its classes, not those inside functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # a function has fast locals, the body of a class has not
                yield constant
            else:
                yield from codes(constant)


def live_functions(root: Path) -> LiveFunctions:
    """The functions that exist now, by path, name and first line; however they were imported or wrapped."""
    gc.unfreeze()
    found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(root)):
            found[_key(thing.__code__)].append(thing)
    gc.collect()
    gc.freeze()
    return found


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def replace_code(tree: ast.Module, path: Path, functions: LiveFunctions, only: str = "") -> bool:
    """Give the live functions of a module (or the one of this name) the code of this tree. False: nothing to replace,
    or not with this code (its closure differs)."""
    replaced = False
    for code in codes(compile(tree, str(path), "exec", dont_inherit=True)):
        if code.co_name.startswith("<") or only not in {"", code.co_qualname}:
            continue  # two lambdas of one line have the same key
        for function in functions.get(_key(code), ()):
            if function.__code__.co_freevars != code.co_freevars:
                return False
            function.__code__ = code
            replaced = True
    return replaced


class _Probes(ast.NodeTransformer):
    """Each outermost function tells that it was called."""

    def __init__(self, file: str) -> None:
        self._name, self._file = "", file

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        before, self._name = self._name, f"{self._name}{node.name}."
        self.generic_visit(node)
        self._name = before
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        call = ast.parse(f"__reached__({f'{self._file}:{self._name}{node.name}'!r})").body[0]
        ast.copy_location(call, node.body[0])
        node.body.insert(1 if ast.get_docstring(node, clean=False) is not None else 0, call)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - its name in ast


# -- the collected session


class Collected:
    """A pytest plugin: in place of running the tests it measures them and runs the mutants."""

    def __init__(self, root: Path, sources: Sequence[Path], state: Path, mutants: Sequence[Mutant]) -> None:
        self._root, self._sources, self._state, self._mutants = root, sources, state, mutants
        self.results: dict[int, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure the changed test files, then run the mutants; write what came of it."""
        if session.testsfailed:
            sys.__stderr__ and print("collection failed", file=sys.__stderr__)
            os._exit(2)
        for path in self._sources:  # functions import some modules when they run, which must exist before
            importlib.import_module(module_name(path.relative_to(self._root).as_posix()))
        functions, items = live_functions(self._root), {item.nodeid: item for item in session.items}
        reach = self._measured(session.items, functions)
        waiting = {
            index: reach.tests_of([mutant.where], TESTS_PER_MUTANT, items)
            for index, mutant in enumerate(self._mutants)
            if mutant.in_body
        }
        indices = [index for index, tests in waiting.items() if tests]
        jobs, limits = [], []
        for index in indices:
            jobs.append(
                lambda index=index: self._run(self._mutants[index], functions, [items[t] for t in waiting[index]])
            )
            limits.append(10 + _SLOWER * sum(reach.seconds[test] for test in waiting[index]))
        for job, result in in_forks(jobs, limits):
            if result != f"error {_FRESH}":
                self.results[indices[job]] = result
                _tell(f"{result:8} {self._mutants[indices[job]]}")
        (self._state / "results.json").write_text(json.dumps(self.results), "utf-8")
        return True

    def _run(self, mutant: Mutant, functions: LiveFunctions, items: list[pytest.Item]) -> int:
        path = self._root / mutant.file
        tree = mutated(path.read_text("utf-8"), mutant)
        return run_items(items) if replace_code(tree, path, functions, mutant.function) else _FRESH

    def _measured(self, items: Sequence[pytest.Item], functions: LiveFunctions) -> Reach:
        known = Reach(self._state)
        files: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in items:
            if not known.is_known(item):
                files[item.path].append(item)
        if not files:
            return known
        _tell(f"measuring {sum(map(len, files.values()))} tests of {len(files)} files")
        parts = [list(files.values())[part::PROCESSES] for part in range(PROCESSES)]
        jobs = [lambda part=part: self._measure(part, functions, known) for part in parts]
        for _, result in in_forks(jobs, [36_000.0] * PROCESSES):
            if result != LIVED:
                _tell(f"measuring ended: {result}")
                os._exit(2)
        return Reach(self._state)

    def _measure(self, files: Sequence[list[pytest.Item]], functions: LiveFunctions, reach: Reach) -> int:
        reached: set[str] = set()
        builtins.__reached__ = reached.add  # type: ignore[attr-defined]
        for path in self._sources:
            tree = _Probes(path.relative_to(self._root).as_posix()).visit(ast.parse(path.read_text("utf-8")))
            replace_code(tree, path, functions)
        for items in files:
            tests: dict[str, tuple[float, Sequence[str]]] = {}

            def ran(item: pytest.Item, used: float, *, failed: bool, tests: Any = tests) -> None:
                if not failed:  # a test that fails without a mutant shows nothing
                    tests[item.nodeid] = used, sorted(reached)
                reached.clear()

            run_items(items, ran)
            reach.add(items[0].path, tests)
        return 0


class _FirstFailure:
    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


def run_items(items: Sequence[pytest.Item], ran: Callable[..., None] | None = None) -> int:
    """Run collected tests. Without `ran` the first failure ends it: returns 1 for it, 0 if all passed."""
    watch = _FirstFailure()
    if items:
        items[0].config.pluginmanager.register(watch)
    with tempfile.TemporaryDirectory() as folder:
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.config._tmp_path_factory._given_basetemp = Path(folder) / "tests"  # type: ignore[attr-defined]
            start = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if ran is not None:
                ran(item, time.process_time() - start, failed=watch.failed)
                watch.failed = False
            elif watch.failed:
                return 1
    return 0


# -- mutants that need a fresh import


class _Selected:
    """A pytest plugin that leaves only these tests."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._order = {test: index for index, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )


def run_fresh(root: Path, mutant: Mutant, tests: Sequence[str]) -> int:
    """Import the mutated module in this process, which has not imported it yet, and run these tests."""
    path = root / mutant.file
    code = compile(mutated(path.read_text("utf-8"), mutant), str(path), "exec", dont_inherit=True)
    loader, get_code = importlib.machinery.SourceFileLoader, importlib.machinery.SourceFileLoader.get_code

    def with_mutant(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return code if self.path == str(path) else get_code(self, fullname)

    loader.get_code = with_mutant  # type: ignore[method-assign,assignment]
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    with tempfile.TemporaryDirectory() as folder:
        result = _pytest(root, [*files, "-x", f"--basetemp={folder}/tests"], _Selected(tests))
    return 0 if result == pytest.ExitCode.OK else 1


def _pytest(root: Path, arguments: Sequence[str], plugin: object) -> int:
    os.chdir(root)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow and not strict", f"--rootdir={root}"]
    return int(pytest.main([*options, *arguments], plugins=[plugin]))


def tests_of_declaration(root: Path, mutant: Mutant, reach: Reach, sources: Sequence[Path]) -> list[str]:
    """The tests that call a function which mentions what the mutant's statement declares; else of the same module; else
    of a module that imports it. The tests of few files only: they are collected anew."""
    names = _declared(root, mutant)
    module = module_name(mutant.file)
    mentions, importers = [], []
    for path in sources:
        text, file = path.read_text("utf-8"), path.relative_to(root).as_posix()
        if any(name in text for name in names):
            mentions += [f"{file}:{name}" for name in _functions_with(ast.parse(text), names)]
        if module in text or f"import {module.rpartition('.')[2]}" in text:
            importers.append(file)
    called = {function for functions in reach.functions.values() for function in functions}
    own = [function for function in called if function.startswith(f"{mutant.file}:")]
    near = [function for function in called if function.partition(":")[0] in importers]
    chosen: list[str] = []
    for functions in (mentions, own, near):
        chosen += reach.tests_of(functions, TESTS_PER_MUTANT / 2)
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in dict.fromkeys(chosen):
        by_file[test.partition("::")[0]].append(test)
    return [test for tests in list(by_file.values())[:_FILES_PER_IMPORT] for test in tests]


def _declared(root: Path, mutant: Mutant) -> set[str]:
    for node in ast.walk(ast.parse((root / mutant.file).read_text("utf-8"))):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= mutant.line <= (node.end_lineno or 0):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return {target.id for target in targets if isinstance(target, ast.Name)} or {mutant.function}
    return {mutant.function.rpartition(".")[2]} - {""}


def _functions_with(tree: ast.AST, names: set[str], prefix: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions_with(node, names, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = {getattr(part, "id", None) or getattr(part, "attr", None) for part in ast.walk(node)}
            if not names.isdisjoint(word for word in words if word):
                yield prefix + node.name


# -- the run


def run(root: Path, sources: Sequence[Path], tests: Sequence[str], state: Path, mutants: Sequence[Mutant]) -> list[str]:
    """What came of each mutant. `state`: the folder of what was measured."""
    state.mkdir(parents=True, exist_ok=True)
    plugin = Collected(root, sources, state, mutants)
    ended = dict(in_forks([lambda: _pytest(root, tests, plugin)], [36_000.0]))[0]
    if ended not in {LIVED, "error 5"}:
        raise SystemExit(f"the collected session ended: {ended}")
    reach = Reach(state)
    results = {int(index): text for index, text in json.loads((state / "results.json").read_text("utf-8")).items()}
    rest = [index for index in range(len(mutants)) if index not in results]
    chosen = {index: tests_of_declaration(root, mutants[index], reach, sources) for index in rest}
    indices = [index for index in rest if chosen[index]]
    jobs = [lambda index=index: run_fresh(root, mutants[index], chosen[index]) for index in indices]
    limits = [_IMPORTS + _SLOWER * sum(reach.seconds[test] for test in chosen[index]) for index in indices]
    for job, result in in_forks(jobs, limits):
        results[indices[job]] = result
        _tell(f"{result:8} {mutants[indices[job]]}")
    return [results.get(index, NOT_APPLICABLE) for index in range(len(mutants))]


def _tell(text: str) -> None:
    os.write(2, f"{text}\n".encode())


def table(mutants: Sequence[Mutant], results: Sequence[str], reasons: Mapping[tuple[str, ...], str]) -> str:
    """The report: a row per package, then the mutants that lived."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    living = []
    for mutant, result in zip(mutants, results, strict=True):
        outcome = "equivalent" if result == LIVED and identity(mutant) in reasons else result
        for package in (mutant.file.split("/")[-2 if mutant.file.count("/") == 1 else 1], "all"):
            rows[package].update(["drawn", KILLED if outcome == TIMEOUT else outcome])
        if outcome not in {KILLED, TIMEOUT, "equivalent"}:
            living.append(f"{outcome}: {mutant}")
    columns = ("drawn", KILLED, LIVED, "equivalent", NOT_APPLICABLE)
    lines = [f"{'':12}" + "".join(f"{column:>16}" for column in columns)]
    lines += [
        f"{package:12}" + "".join(f"{rows[package][column]:16}" for column in columns)
        for package in sorted(rows, key=lambda name: (name == "all", name))
    ]
    judged = rows["all"][KILLED] + rows["all"][LIVED]
    lines.append(f"{100 * rows['all'][KILLED] / max(1, judged):.1f} % killed of those that are not equivalent")
    return "\n".join([*lines, *sorted(living)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw or read the mutants, run them, print the table."""
    parser = argparse.ArgumentParser(description="mutation testing")
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--living", action="store_true", help="only those of the last run that lived")
    parser.add_argument("--at", action="append", default=[], help="FILE:LINE or FILE:FIRST-LAST, all mutants there")
    options = parser.parse_args(arguments)
    folders, state = [f"chalicelib/{package}" for package in PACKAGES], ROOT / "build/mutants"
    sources = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    mutants: list[Mutant] = []
    if options.living:
        mutants = [
            Mutant(**row) for row, result in json.loads((state / "last.json").read_text("utf-8")) if result == LIVED
        ]
    for place in options.at:
        file, _, lines = place.partition(":")
        first, _, last = lines.partition("-")
        mutants += mutants_of(file, (ROOT / file).read_text("utf-8"), range(int(first), int(last or first) + 1))
    mutants = mutants or drawn(ROOT, folders, options.count, options.seed)
    results = run(ROOT, sources, [*TESTS, *UNUSED_TESTS], state, mutants)
    if not options.at:
        rows = [(asdict(mutant), result) for mutant, result in zip(mutants, results, strict=True)]
        (state / "last.json").write_text(json.dumps(rows, indent=1), "utf-8")
    print(table(mutants, results, equivalents(Path(__file__).with_name("equivalent.toml"))))


if __name__ == "__main__":
    main()
