"""The runner of the mutants, on a module with one test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.mutation.mutants import Mutant, drawn, equivalents, identity, mutants_of
from tests.mutation.run import (
    EQUIVALENT,
    KILLED,
    LIVED,
    LONG_TESTS,
    NOT_APPLICABLE,
    ROOT,
    Verdicts,
    files_importing,
    table,
)

MODULE = '''"""A shop."""

LIMIT = 3


def price(count: int, each: int) -> int:
    if count >= LIMIT:
        return count * each - 1
    return count * each


def discount(count: int) -> bool:
    return count > 5


class Basket:
    names = ("bread", "milk")
'''
LATER = """def half(count: int) -> int:
    return count // 2


PAIR = (lambda one: one, lambda one, two: one + two)
"""
TEST = """
from shop.basket import LIMIT, price

def test_price():
    assert price(1, 7) == 7
    assert price(4, 7) == 27
    assert LIMIT == 3

def test_half():
    from shop.later import PAIR, half
    assert half(4) == 2
    assert PAIR[1](1, 2) == 3
"""
RUN = """
import json, sys
from pathlib import Path
from tests.mutation.mutants import mutants_of
from tests.mutation.run import Verdicts, run
root = Path(sys.argv[1])
files = [root / "shop/basket.py", root / "shop/later.py", root / "shop/unused.py"]
found = [mutant for file in files for mutant in mutants_of(f"shop/{file.name}", \
file.read_text("utf-8"))]
verdicts = Verdicts(root / "results.jsonl")
run(root, files, ["tests"], root / "state", found, verdicts)
print(json.dumps([[str(one), result] for one, result in verdicts.read().items()]))
"""


def written(text: str) -> list[str]:
    return [str(mutant) for mutant in mutants_of("a.py", text)]


def test_each_operator_shows_what_it_changes() -> None:
    assert written(
        "def f(a, b):\n    if not a < 1 and b:\n        g(a, b)\n    return [a, True]\n"
    ) == [
        "a.py:2 f: negation: not a < 1 and b  ->  not (not a < 1 and b)",
        "a.py:2 f: and/or: not a < 1 and b  ->  not a < 1 or b",
        "a.py:2 f: comparison: a < 1  ->  a <= 1",
        "a.py:2 f: constant: a < 1  ->  a < 2",
        "a.py:3 f: removed call: g(a, b)  ->  nothing",
        "a.py:3 f: swapped arguments: g(a, b)  ->  g(b, a)",
        "a.py:4 f: returned nothing: return [a, True]  ->  return None",
        "a.py:4 f: dropped element: [a, True]  ->  [True]",
        "a.py:4 f: dropped element: [a, True]  ->  [a]",
        "a.py:4 f: constant: [a, True]  ->  [a, False]",
    ]
    assert written("x = {'a': 1}\nf(a=x, b=2)\ny = [a for a in x if a]\n") == [
        "a.py:1 : dropped element: {'a': 1}  ->  {}",
        "a.py:1 : constant: {'a': 1}  ->  {'ax': 1}",
        "a.py:1 : constant: {'a': 1}  ->  {'a': 2}",
        "a.py:2 : removed call: f(a=x, b=2)  ->  nothing",
        "a.py:2 : swapped arguments: f(a=x, b=2)  ->  f(a=2, b=x)",
        "a.py:2 : constant: b=2  ->  b=3",
        "a.py:3 : negation:  for a in x if a  ->   for a in x if not a",
    ]


def test_what_no_behaviour_shows_is_not_drawn() -> None:
    assert (
        written(
            '"""Text."""\n__all__ = ["f"]\n\n@d(1)\ndef f(a: "int") -> "int":\n    assert a > 1\n'
        )
        == []
    )
    assert (
        written("raise E(f'a {b} text')\nclass A(B, frozen=True):\n    'text'\n    a: 'b'\n") == []
    )


def test_the_lot_depends_on_the_seed_only(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/basket.py").write_text(MODULE, "utf-8")
    first = drawn(tmp_path, ["shop"], 5, 1)
    assert first == drawn(tmp_path, ["shop"], 5, 1)
    assert first != drawn(tmp_path, ["shop"], 5, 2)
    assert len(set(first)) == 5


def test_mutants_are_killed_survive_or_cannot_be_judged(tmp_path: Path) -> None:
    for name, text in {
        "shop/basket.py": MODULE,
        "shop/later.py": LATER,
        "shop/unused.py": "SIZE = 1\n",
        "tests/test_price.py": TEST,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["."]\naddopts = "--import-mode=importlib"\n'
        'markers = ["slow: s", "strict: s"]\n',
        "utf-8",
    )
    run = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        cwd=ROOT,
        # each fresh session would load every plugin that is installed
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    results = dict(json.loads(run.stdout.splitlines()[-1]))
    assert (
        results["shop/basket.py:9 price: returned nothing: return count * each  ->  return None"]
        == KILLED
    )
    assert results["shop/basket.py:7 price: comparison: count >= LIMIT  ->  count > LIMIT"] == LIVED
    assert results["shop/basket.py:13 discount: comparison: count > 5  ->  count >= 5"] == LIVED
    assert results["shop/basket.py:3 : constant: 3  ->  4"] == KILLED
    # imported by the test only when it runs
    assert (
        results["shop/later.py:2 half: returned nothing: return count // 2  ->  return None"]
        == KILLED
    )
    assert results["shop/unused.py:1 : constant: 1  ->  2"] == NOT_APPLICABLE
    assert (tmp_path / "shop/basket.py").read_text("utf-8") == MODULE


def test_report_counts_by_package_and_lists_those_that_lived(tmp_path: Path) -> None:
    mutants = [
        Mutant("chalicelib/plan/a.py", line, "f", True, "constant", "1", "2", line, 0)
        for line in (1, 2, 3, 4)
    ]
    (tmp_path / "known.toml").write_text(
        '[[equivalent]]\nfile = "chalicelib/plan/a.py"\nfunction = "f"\noperator = "constant"\n'
        'before = "1"\n'
        'after = "2"\nreason = "a cache"\n',
        "utf-8",
    )
    known = equivalents(tmp_path / "known.toml")
    assert known == {identity(mutants[0]): "a cache"}
    results = dict(zip(mutants, [KILLED, LIVED, "timeout", NOT_APPLICABLE], strict=True))
    assert "50.0" not in table(results, known)
    text = table(results, {})
    assert "66.7 % killed" in text
    assert "lived: chalicelib/plan/a.py:2 f: constant: 1  ->  2" in text.splitlines()
    assert "a.py:3 f" not in text


def test_results_of_an_interrupted_run_are_read_again(tmp_path: Path) -> None:
    one, two, three = (
        Mutant("a.py", line, "f", True, "constant", "1", "2", line, 0) for line in (1, 2, 3)
    )
    verdicts = Verdicts(tmp_path / "results.jsonl")
    assert verdicts.read() == {}
    for mutant, result in [
        (one, LIVED),
        (two, "error 70"),
        (one, KILLED),
        (three, "to import"),
        (three, LIVED),
    ]:
        verdicts.add(mutant, result)
    with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"result": "killed", "file": "a.p')
    assert verdicts.read() == {one: KILLED, three: LIVED}


def test_tests_that_may_notice_are_those_that_import_the_code() -> None:
    tests = files_importing(["policy", "store"])
    for test in (
        "unit/policy/test_policy_rules.py",
        "functional/test_cli_migrate.py",
        "property/test_policy_fuzz.py",
    ):
        assert f"tests/{test}" in tests
    # through the module of its client
    assert "tests/functional/test_routes_event_formats.py" in tests
    assert "tests/unit/schedules/test_cron.py" not in tests
    assert not [test for test in tests if test.split("/")[1] in LONG_TESTS]


def test_every_equivalent_still_exists() -> None:
    rows = equivalents(EQUIVALENT)
    files = {row[0] for row in rows}
    existing = {
        identity(one)
        for file in files
        for one in mutants_of(file, (ROOT / file).read_text("utf-8"))
    }
    assert rows.keys() - existing == set()
