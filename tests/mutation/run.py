"""Mutation testing: draws faults by lot and reports those that no test notices.

    python -m tests.mutation.run --seed 30 --count 150      draw and run; continues an interrupted
                                                            run
    python -m tests.mutation.run --seconds 5                less of the tests for each, for a quick
                                                            look
    python -m tests.mutation.run --living                   those of the results that lived, once
                                                            more
    python -m tests.mutation.run --at chalicelib/plan/group_repair.py:40-60

Each verdict is appended to the results file (--results), and a mutant with a verdict there is not
run again: for a new run of the same draw remove the file, or name another.

One process collects the tests once and measures which functions each test calls (kept in
build/mutants/ per test file). For each mutant it forks, replaces the code of the function, and runs
the tests that call it: of the unit and contract tests those that call the fewest functions, then
the cheapest of the others. A mutant outside of functions (tables, fields, defaults) needs a
fresh import: a process that has imported nothing yet forks, and the import of that one module gives
the mutated code. Two processes run at a time. A limit of CPU time ends a mutant that loops, an
alarm one that waits for ever.
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
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutation.mutants import Mutant, drawn, equivalents, identity, mutants_of, mutated
from tests.mutation.reach import Declarations, Reach
from tests.source_trees import import_graph, imported_names, module_name, sources, trees

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
PACKAGES = (
    "plan",
    "operations",
    "store",
    "providers",
    "passes",
    "runtime",
    "functions",
    "policy",
)
#: Folders of tests that take minutes per file, or that need another process for each case.
LONG_TESTS = frozenset({"benchmarks", "differential", "faults", "mutation", "scenario"})
PROCESSES = 2
#: What a mutant may use of the CPU time of its tests: so many times, and so many
#: seconds for the imports.
_SLOWER, _IMPORTS = 4, 60
KILLED, LIVED, TIMEOUT, NOT_APPLICABLE = "killed", "lived", "timeout", "not applicable"
_FRESH = 75  # the exit code of a mutant that needs a fresh import
_CODES = {0: LIVED, 1: KILLED, _FRESH: "to import"}
_UNLIMITED = 36_000.0
#: Functions by path, name and first line.
LiveFunctions = dict[tuple[str, str, int], list[FunctionType]]

# -- processes


def in_forks(
    jobs: Sequence[Callable[[], int]], limits: Sequence[float]
) -> Iterator[tuple[int, str]]:
    """Run each job in a forked process within a limit of CPU seconds; returns its
    index and what came of it."""
    waiting, running = list(range(len(jobs))), dict[int, int]()
    while waiting or running:
        while waiting and len(running) < PROCESSES:
            job = waiting.pop(0)
            running[_forked(jobs[job], limits[job])] = job
        pid, status = os.waitpid(-1, 0)
        if pid in running:
            _end_group(pid)
            code = os.waitstatus_to_exitcode(status)
            yield running.pop(pid), TIMEOUT if code < 0 else _CODES.get(code, f"error {code}")


def _forked(job: Callable[[], int], limit: float) -> int:
    if pid := os.fork():
        return pid
    code = 70
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + int(limit) + 1, used + int(limit) + 3))
        signal.alarm(60 + 10 * int(limit))
        code = job()
    except Exception:
        _tell(traceback.format_exc())
    finally:
        os._exit(code)


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)  # what the tests of the mutant started
    except (ProcessLookupError, PermissionError):
        return


def _tell(text: str) -> None:
    os.write(2, f"{text}\n".encode())


# -- the code of functions


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects of the functions of a module and of its classes, not those inside
    functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # a function has fast locals, the body of a class has not
                yield constant
            else:
                yield from codes(constant)


def live_functions(root: Path) -> LiveFunctions:
    """The functions that exist now, by path, name and first line; however they
    were imported or wrapped."""
    gc.unfreeze()
    functions: LiveFunctions = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(root)):
            functions[_key(thing.__code__)].append(thing)
    gc.collect()
    gc.freeze()
    return functions


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def replace_code(tree: ast.Module, path: Path, functions: LiveFunctions, only: str = "") -> bool:
    """Give the live functions of a module (or the one of this name) the code of this tree. False:
    nothing to replace, or not with this code (its closure differs)."""
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


# -- the sessions


class Collected:
    """A pytest plugin: in place of running the tests it measures them and runs
    the mutants in functions."""

    def __init__(
        self,
        root: Path,
        paths: Sequence[Path],
        reach: Callable[[], Reach],
        mutants: Sequence[Mutant],
        verdicts: Verdicts,
    ) -> None:
        self._root, self._paths, self._reach, self._mutants, self._verdicts = (
            root,
            paths,
            reach,
            mutants,
            verdicts,
        )

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure the changed test files, then run the mutants."""
        if session.testsfailed:
            _tell("collection failed: run pytest --collect-only")
            os._exit(2)
        # functions import some modules when they run, which must exist before
        for path in self._paths:
            importlib.import_module(module_name(path.relative_to(self._root).as_posix()))
        functions, items = live_functions(self._root), {item.nodeid: item for item in session.items}
        files: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            files[item.path].append(item)
        known = self._reach()
        if changed := [path for path in files if not known.knows(path)]:
            _tell(f"measuring {len(changed)} files of tests")
            list(
                in_forks(
                    [lambda: self._measure([files[path] for path in changed], functions, known)],
                    [_UNLIMITED],
                )
            )
        reach = self._reach()
        tests = {
            mutant: reach.affordable(
                test for test in reach.callers([mutant.where]) if test in items
            )
            for mutant in self._mutants
            if mutant.in_body
        }
        _judge(
            tests,
            reach,
            lambda mutant, chosen: self._run(mutant, functions, [items[test] for test in chosen]),
            self._verdicts,
        )
        return True

    def _run(self, mutant: Mutant, functions: LiveFunctions, items: list[pytest.Item]) -> int:
        path = self._root / mutant.file
        tree = mutated(path.read_text("utf-8"), mutant)
        return run_items(items) if replace_code(tree, path, functions, mutant.function) else _FRESH

    def _measure(
        self, files: Sequence[list[pytest.Item]], functions: LiveFunctions, reach: Reach
    ) -> int:
        reached: set[str] = set()
        builtins.__reached__ = reached.add  # type: ignore[attr-defined]
        for path in self._paths:
            tree = _Probes(path.relative_to(self._root).as_posix()).visit(
                ast.parse(path.read_text("utf-8"))
            )
            replace_code(tree, path, functions)

        def measure(items: list[pytest.Item]) -> int:
            tests: dict[str, tuple[float, Sequence[str]]] = {}

            def ran(item: pytest.Item, used: float, *, failed: bool) -> None:
                if not failed:  # a test that fails without a mutant shows nothing
                    tests[item.nodeid] = used, sorted(reached)
                reached.clear()

            run_items(items, ran)
            reach.add(items[0].path, tests)
            return 0

        jobs = [lambda items=items: measure(items) for items in files]
        for job, result in in_forks(jobs, [_IMPORTS * 10.0] * len(files)):
            if result != LIVED:
                _tell(f"measuring {files[job][0].path} ended: {result}")
        return 0


class _FirstFailure:
    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


def run_items(items: Sequence[pytest.Item], ran: Callable[..., None] | None = None) -> int:
    """Run collected tests. Without `ran` the first failure ends it: returns 1
    for it, 0 if all passed."""
    watch = _FirstFailure()
    items[0].config.pluginmanager.register(watch)
    with tempfile.TemporaryDirectory() as folder:
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.config._tmp_path_factory._given_basetemp = Path(folder) / "tests"  # type: ignore[attr-defined]
            start = _cpu_seconds()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if ran is not None:
                ran(item, _cpu_seconds() - start, failed=watch.failed)
                watch.failed = False
            elif watch.failed:
                return 1
    return 0


def _cpu_seconds() -> float:
    return sum(os.times()[:4])  # with the processes that tests started


class _Selected:
    """A pytest plugin that leaves only these tests."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._order = {test: index for index, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order),
            key=lambda item: self._order[item.nodeid],
        )


def run_fresh(root: Path, mutant: Mutant, tests: Sequence[str]) -> int:
    """Import the mutated module in this process, which has not imported it
    yet, and run these tests."""
    path = root / mutant.file
    code = compile(mutated(path.read_text("utf-8"), mutant), str(path), "exec", dont_inherit=True)
    loader, get_code = (
        importlib.machinery.SourceFileLoader,
        importlib.machinery.SourceFileLoader.get_code,
    )

    def with_mutant(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return code if self.path == str(path) else get_code(self, fullname)

    loader.get_code = with_mutant  # type: ignore[method-assign,assignment]
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    with tempfile.TemporaryDirectory() as folder:
        result = _pytest(root, [*files, "-x", f"--basetemp={folder}/tests"], _Selected(tests))
    return {pytest.ExitCode.OK: 0, pytest.ExitCode.USAGE_ERROR: 70}.get(pytest.ExitCode(result), 1)


def _pytest(root: Path, arguments: Sequence[str], plugin: object) -> int:
    os.chdir(root)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    options = [
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not strict",
        f"--rootdir={root}",
    ]
    return int(pytest.main([*options, *arguments], plugins=[plugin]))


# -- the run


class Verdicts:
    """What came of each mutant: a file with a line for each verdict, of
    which a later one counts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, mutant: Mutant, result: str) -> None:
        """Append a verdict, and tell it."""
        _tell(f"{result:8} {mutant}")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"result": result, **asdict(mutant)}) + "\n")

    def read(self) -> dict[Mutant, str]:
        """All but those of mutants to run again, and a last line that an
        interrupted run left incomplete."""
        text = self._path.read_text("utf-8") if self._path.exists() else ""
        rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("}\n")]
        results = [str(row.pop("result")) for row in rows]
        last = {Mutant(**row): result for row, result in zip(rows, results, strict=True)}
        return {
            mutant: last[mutant]
            for mutant in last
            if last[mutant] in {KILLED, LIVED, TIMEOUT, NOT_APPLICABLE}
        }


def files_importing(packages: Sequence[str]) -> list[str]:
    """The test files that import one of these packages, themselves or through
    modules of tests and infra."""
    modules = dict(trees("tests", "infra"))
    names = {module_name(path): tree for path, tree in modules.items()}
    within = tuple(f"chalicelib.{package}." for package in packages)
    using = {
        name
        for name, tree in names.items()
        if any(f"{it}.".startswith(within) for it, _ in imported_names(tree))
    }
    graph = import_graph(names)
    while more := {name for name, imported in graph.items() if imported & using} - using:
        using |= more
    return [
        path
        for path in modules
        if module_name(path) in using and "/test_" in path and path.split("/")[1] not in LONG_TESTS
    ]


def run(
    root: Path,
    paths: Sequence[Path],
    tests: Sequence[str],
    state: Path,
    mutants: Sequence[Mutant],
    verdicts: Verdicts,
    limit: float = 30.0,
) -> None:
    """Add the verdict of each mutant. state: where measurements are stored. limit: CPU
    seconds of tests per mutant."""
    state.mkdir(parents=True, exist_ok=True)
    plugin = Collected(root, paths, lambda: Reach(state, limit), mutants, verdicts)
    ended = dict(in_forks([lambda: _pytest(root, tests, plugin)], [_UNLIMITED]))[0]
    if ended not in {LIVED, "error 5"}:
        raise SystemExit(f"the collected session ended: {ended}")
    reach, judged = Reach(state, limit), verdicts.read()
    declarations = Declarations(root, paths, reach)
    rest = [mutant for mutant in mutants if mutant not in judged or not mutant.in_body]
    chosen = {mutant: declarations.tests_of(mutant) for mutant in rest}
    _judge(chosen, reach, lambda mutant, tests: run_fresh(root, mutant, tests), verdicts)
    for mutant, near in chosen.items():
        if not near:
            verdicts.add(mutant, NOT_APPLICABLE)


def _judge(
    tests: Mapping[Mutant, Sequence[str]],
    reach: Reach,
    judge: Callable[[Mutant, Sequence[str]], int],
    verdicts: Verdicts,
) -> None:
    mutants = [mutant for mutant, chosen in tests.items() if chosen]
    jobs = [lambda mutant=mutant: judge(mutant, tests[mutant]) for mutant in mutants]
    limits = [
        _IMPORTS + _SLOWER * sum(reach.seconds[test] for test in tests[mutant])
        for mutant in mutants
    ]
    for job, result in in_forks(jobs, limits):
        verdicts.add(mutants[job], result)


def table(results: Mapping[Mutant, str], reasons: Mapping[tuple[str, ...], str]) -> str:
    """The report: a row per package, then the mutants that lived."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    living = []
    for mutant, result in results.items():
        outcome = "equivalent" if result == LIVED and identity(mutant) in reasons else result
        for package in (mutant.file.split("/")[-2 if mutant.file.count("/") == 1 else 1], "all"):
            rows[package].update(["drawn", KILLED if outcome == TIMEOUT else outcome])
        if outcome not in {KILLED, TIMEOUT}:
            living.append(f"{outcome}: {mutant}")
    columns = ("drawn", KILLED, LIVED, "equivalent", NOT_APPLICABLE)
    lines = [f"{'':12}" + "".join(f"{column:>16}" for column in columns)]
    lines += [
        f"{package:12}" + "".join(f"{rows[package][column]:16}" for column in columns)
        for package in sorted(rows, key=lambda name: (name == "all", name))
    ]
    judged = rows["all"][KILLED] + rows["all"][LIVED]
    lines.append(
        f"{100 * rows['all'][KILLED] / max(1, judged):.1f} % killed of those that are not "
        "equivalent"
    )
    return "\n".join([*lines, *sorted(living)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw or read the mutants, run them, print the table."""
    parser = argparse.ArgumentParser(description="mutation testing")
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of CPU, for the tests of one mutant"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=ROOT / "build/mutants/results.jsonl",
        help="a line per verdict",
    )
    parser.add_argument(
        "--living", action="store_true", help="only those of the results that lived"
    )
    parser.add_argument(
        "--at", action="append", default=[], help="FILE:LINE or FILE:FIRST-LAST, all mutants there"
    )
    options = parser.parse_args(arguments)
    verdicts = Verdicts(options.results)
    known = verdicts.read()
    mutants: list[Mutant] = []
    for place in options.at:
        file, _, lines = place.partition(":")
        first, _, last = lines.partition("-")
        mutants += mutants_of(
            file, (ROOT / file).read_text("utf-8"), range(int(first), int(last or first) + 1)
        )
    if options.living:
        mutants = list(known)
        known = {mutant: result for mutant, result in known.items() if result in {KILLED, TIMEOUT}}
    elif options.at:
        known = {}
    else:
        mutants = drawn(
            ROOT, [f"chalicelib/{package}" for package in PACKAGES], options.count, options.seed
        )
    ahead = [mutant for mutant in mutants if mutant not in known]
    _tell(
        f"{len(ahead)} mutants to run, {len(mutants) - len(ahead)} have a verdict in "
        f"{options.results}"
    )
    if ahead:
        paths, tests = sources("chalicelib", "infra/tools"), files_importing(PACKAGES)
        run(ROOT, paths, tests, ROOT / "build/mutants", ahead, verdicts, options.seconds)
    results = verdicts.read()
    print(
        table({mutant: results.get(mutant, "error") for mutant in mutants}, equivalents(EQUIVALENT))
    )


if __name__ == "__main__":
    main()
