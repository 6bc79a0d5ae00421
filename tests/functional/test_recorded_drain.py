"""The recorded run is repeated, and its document still describes it correctly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.demo.drains import drain_fixture, drain_runner
from infra.demo.drains.__main__ import BEGIN, END, HEAD, TAIL, main, recorded

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "infra/demo/drains/recorded-drain.md"
Said = pytest.CaptureFixture[str]
AGAIN = "python -m infra.demo.drains --record infra/demo/drains/recorded-drain.md"


def _run() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.demo.drains"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _closing(account: str) -> tuple[list[str], dict[str, int]]:
    """The lines of expectations and the figures."""
    _, _, closing = account.partition("\nExpected\n")
    expected, _, figures = closing.partition("\nFigures\n")
    lines = [line.strip().partition("  ") for line in figures.splitlines() if line.startswith("  ")]
    return expected.split("\n"), {
        what.partition(":")[0].strip(): int(number) for number, _, what in lines
    }


def test_recorded_run_of_twenty_drains_is_reproduced() -> None:
    done = _run()
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-3000:]
    _, _, rest = DOCUMENT.read_text("utf-8").partition(BEGIN)
    reported, _, _ = rest.partition(END)
    expected, figures = _closing(done.stdout)
    expected_then, figures_then = _closing(reported)
    assert len(expected) > 10
    assert expected == expected_then, f"record it again: {AGAIN}"
    assert figures.keys() == figures_then.keys(), f"record it again: {AGAIN}"
    far = {
        what: (figures_then[what], now)
        for what, now in figures.items()
        if not figures_then[what] / 2 - 5 <= now <= figures_then[what] * 2 + 5
    }
    assert far == {}, f"(recorded, now); record it again: {AGAIN}"
    assert figures["functions killed"] >= 10


def test_drain_demonstration_without_any_progress_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function dies at its first checkpoint, every time."""
    monkeypatch.setattr(drain_fixture, "DEADLY", 1.0)
    monkeypatch.setattr(drain_runner, "LIMIT", 600.0)
    lines: list[str] = []

    assert drain_runner.tell(2, 1, lines.append) == 1

    expected, figures = _closing("\n".join(["", *lines]))
    refused = [line.split("  ")[2].strip() for line in expected if line.startswith("  NO ")]
    assert "2 nodes are gone, and no other" in refused
    assert "each machine was deleted once" in refused
    assert figures["functions killed"] > 2


def test_recorded_account_replaces_the_previous_one_and_is_shortened() -> None:
    document = f"before\n{BEGIN}old\n{END}\nafter\n"
    short = recorded(document, ["one", "two"])
    assert short == f"before\n{BEGIN}one\ntwo\n{END}\nafter\n"
    lines = [f"line {number}" for number in range(HEAD + TAIL + 10)]
    long = recorded(short, lines)
    assert long.startswith(f"before\n{BEGIN}line 0\n")
    assert f"line {HEAD - 1}\n        … 10 lines …\nline {HEAD + 10}\n" in long
    assert long.endswith(f"{lines[-1]}\n{END}\nafter\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--nodes", "0"),
        ("--nodes", "many"),
        ("--seed", "x"),
        ("--record", "no-such-file.md"),
        ("--nonsense",),
    ],
)
def test_invalid_drain_demonstration_argument_is_one_line_with_exit_code_2(
    arguments: tuple[str, ...], capsys: Said
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert (end.value.code, said.out, said.err.count("\n")) == (2, "", 1)
