"""Table output: plain and exact for pipes, formatted on a terminal,
harmless for any text in a name.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec
import pytest

from chalicelib.cli.output import (
    GrowingTable,
    Styled,
    Table,
    as_error,
    as_warning,
    columns,
    folded,
    is_fold_of,
    local_time,
    one_line,
    printable,
    show,
    with_local_times,
)
from chalicelib.model.timestamps import parse_time
from tests.terminal import Terminal

TABLE = Table(
    ("name", "size"), (("a", "1"), ("long-name", "200")), title="Groups", right=frozenset({1})
)


def shown(*tables: Table, text: str = "", out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    show([*([text] if text else []), *tables], out)
    return out.getvalue()


def test_cli_table_plain_columns_are_aligned() -> None:
    assert shown(TABLE) == "Groups\nNAME        SIZE\na              1\nlong-name    200\n"


def test_cli_table_is_separated_from_text_and_omitted_when_empty() -> None:
    empty, silent = Table(("a",), (), empty="none"), Table(("a",), (), title="Nothing")
    assert shown(TABLE, empty, silent, text="Summary.").split("\n\n") == [
        "Summary.",
        "Groups\nNAME        SIZE\na              1\nlong-name    200",
        "none\n",
    ]


def test_cli_table_plain_rows_are_never_truncated() -> None:
    assert "x" * 5000 in shown(Table(("a",), (("x" * 5000,),)))


def test_cli_table_wide_characters_take_two_columns() -> None:
    assert shown(Table(("n", "m"), (("日本", "1"), ("abcd", "2")))).splitlines() == [
        "N      M",
        "日本   1",
        "abcd   2",
    ]
    assert [columns(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]


def test_cli_table_control_characters_do_not_reach_the_terminal() -> None:
    evil = "a\x1b[31mred\x07\u202egnp\n"
    for out in (io.StringIO(), Terminal()):
        text = shown(Table(("name",), ((evil,),), title=evil), text=evil, out=out)
        assert not {"\x07", "\u202e"} & set(text)
        assert "\x1b[31mred" not in text
    assert printable("plain") == "plain"
    assert one_line("a\nb\t c\x1b") == "a b c\N{REPLACEMENT CHARACTER}"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The lines of a table on a terminal of a width, without colours."""

    def lines(*tables: Table, width: int, text: str = "", term: str = "xterm") -> list[str]:
        for name, value in {"TERM": term, "NO_COLOR": "1", "COLUMNS": str(width)}.items():
            monkeypatch.setenv(name, value)
        return shown(*tables, text=text, out=Terminal()).splitlines()

    return lines


GROUPS = Table(
    ("group", "provider", "nodes", "state"),
    (
        ("workers", "clusterapi", "5", "steady"),
        ("burst-g7", "alicloud", "0", "backing off until 00:57: sold out in cn-hangzhou-i"),
        ("render-sks", "exoscale", "0+2", "2 nodes on their way since 41s (usually 2m10s)"),
    ),
)


def test_table_on_a_wide_terminal_has_one_line_per_row(terminal: Callable[..., list[str]]) -> None:
    assert terminal(GROUPS, width=100) == [
        "GROUP        PROVIDER     NODES   STATE",
        "workers      clusterapi   5       steady",
        "burst-g7     alicloud     0       backing off until 00:57: sold out in cn-hangzhou-i",
        "render-sks   exoscale     0+2     2 nodes on their way since 41s (usually 2m10s)",
    ]


def test_title_may_be_longer_than_the_rows(terminal: Callable[..., list[str]]) -> None:
    table = Table(("a",), (("b",),), title="Pods that fit on existing or upcoming nodes")
    assert terminal(table, width=80) == ["Pods that fit on existing or upcoming nodes", "A", "b"]


def test_table_on_a_narrow_terminal_wraps_between_words(terminal: Callable[..., list[str]]) -> None:
    assert terminal(GROUPS, width=64) == [
        "GROUP        PROVIDER     NODES   STATE",
        "workers      clusterapi   5       steady",
        "burst-g7     alicloud     0       backing off until 00:57: sold",
        "                                  out in cn-hangzhou-i",
        "render-sks   exoscale     0+2     2 nodes on their way since 41s",
        "                                  (usually 2m10s)",
    ]


def test_table_that_is_too_wide_shows_each_row_as_lines(terminal: Callable[..., list[str]]) -> None:
    assert terminal(GROUPS, width=40)[:10] == [
        "GROUP      workers",
        "PROVIDER   clusterapi",
        "NODES      5",
        "STATE      steady",
        "",
        "GROUP      burst-g7",
        "PROVIDER   alicloud",
        "NODES      0",
        "STATE      backing off until 00:57: sold",
        "           out in cn-hangzhou-i",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 100, 120])
def test_words_are_not_broken_on_any_terminal(
    width: int, terminal: Callable[..., list[str]]
) -> None:
    words = [
        "operation",
        "a-node-with-a-rather-long-name-0123456789",
        "waits",
        "for",
        "machines",
        "日本語",
    ]
    rows = tuple(
        tuple(" ".join((words * 3)[start : start + 5]) for start in (row, row + 1, row + 2))
        for row in range(6)
    )
    lines = terminal(Table(("one", "two", "three"), rows), width=width, text=" ".join(words * 9))
    heads = {"ONE", "TWO", "THREE"}
    shown_words = {word for line in lines for word in line.split()} - heads
    assert {word for word in shown_words if "…" not in word} <= set(words)
    folds = [word for word in shown_words if word not in words]
    assert all(is_fold_of(word, words[1]) for word in folds)
    longest = max(map(columns, words)) + len("THREE   ")
    assert max(map(columns, lines)) <= max(width, longest)


def test_width_of_a_terminal_does_not_change_what_a_pipe_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    plain = shown(GROUPS)
    assert len(plain.splitlines()) == 4
    assert "\t" not in plain
    assert plain.splitlines()[2].split("   ")[0] == "burst-g7"


def test_cli_table_has_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = shown(TABLE, out=Terminal())
    assert "\x1b[1mGroups" in text
    assert re.sub(r"\x1b\[\d*m", "", text) == shown(TABLE)
    monkeypatch.setenv("TERM", "dumb")
    assert shown(TABLE, out=Terminal()) == shown(TABLE)


def test_pipe_does_not_load_the_library_of_terminals() -> None:
    code = (
        "import sys; from chalicelib.cli.output import Table, show; "
        "show([Table(('a',), (('b',),))]); print('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.splitlines() == ["A", "b", "False"]


def test_instants_are_local_on_a_terminal_and_exact_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Zurich")
    time.tzset()
    now = parse_time("2026-11-24T12:00:00Z")
    text = "paused until 2026-11-24T13:30:00Z, since 2026-11-23T23:30:00Z, 2026-11-22T08:00:00Z"
    assert (
        with_local_times(text, now, Terminal()) == "paused until 14:30, since 00:30, Nov 22 09:00"
    )
    assert with_local_times(text, now, io.StringIO()) == text
    assert (
        with_local_times("until 2026-99-99T99:99:99Z", now, Terminal())
        == "until 2026-99-99T99:99:99Z"
    )
    assert local_time(1e300, now, Terminal()) == "9999-12-31T23:59:59Z"
    monkeypatch.delenv("TZ")
    time.tzset()


def test_cli_colours_depend_on_terminal_and_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table(("severity", "size"), (("error", "+2 -> 4"), ("ok", Styled("3", "yellow"))))
    assert "\x1b[31merror" in shown(table, out=Terminal())
    assert "\x1b[33m3" in shown(table, out=Terminal())
    assert as_warning("careful", Terminal()) == "\x1b[33mcareful\x1b[0m"
    assert as_error("bad", io.StringIO()) == "bad"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in shown(table, out=Terminal())
    assert as_warning("careful", Terminal()) == "careful"


def test_long_names_are_folded_in_the_middle_and_short_ones_are_whole() -> None:
    long = "gke-prod-eu-central-1-workers-x7k2m"
    assert folded(["w-17", long], 20) == {"w-17": "w-17", long: "gke-prod-…kers-x7k2m"}


@pytest.mark.parametrize("most", [8, 20, 36])
def test_no_two_names_are_folded_to_the_same_text(most: int) -> None:
    parts = ("", "a", "b", "ab", "-" * 30, "x" * 45)
    names = {
        f"{first}{'w' * 24}{middle}{'z' * 24}{last}"
        for first in parts
        for middle in parts
        for last in parts
    }
    names |= {"ww…zz", "wwww…zzz"}
    texts = folded(names, most)
    assert len(set(texts.values())) == len(names)
    whole = {name for name in names if len(name) <= most}
    assert all(texts[name] == name for name in whole)


def test_names_that_differ_in_one_place_are_folded_elsewhere() -> None:
    names = [f"{'n' * 28}{number}{'n' * 28}" for number in range(9)]
    assert {len(text) for text in folded(names, 36).values()} == {36}


NOTED = Table(
    ("verdict", "node", "cause", "id"),
    (
        ("same", "w-1", "", "a1"),
        ("later", "w-2", "a cool-down of ten minutes after the last growth", "b2"),
    ),
    notes=frozenset({2}),
)


def test_notes_are_columns_where_each_row_fits_one_line(terminal: Callable[..., list[str]]) -> None:
    wide = terminal(NOTED, width=80)
    assert wide == shown(NOTED).splitlines()
    assert len(wide) == 3


def test_notes_are_below_their_row_where_it_does_not_fit(
    terminal: Callable[..., list[str]],
) -> None:
    assert terminal(NOTED, width=40) == [
        "VERDICT   NODE   ID",
        "same      w-1    a1",
        "later     w-2    b2",
        "  cause: a cool-down of ten minutes",
        "  after the last growth",
    ]


def name_of(number: int) -> str:
    """A name of 63 characters, which differs from the others in its middle or at its end."""
    name = f"{'very-long-name-of-a-node-group' * 3}"[: 60 - 2 * (number % 2)]
    return f"{name}-{number:02}{'-x' * (number % 2)}"


LONG = Table(
    ("group", "provider", "nodes", "min..max", "cpu", "memory", "state"),
    tuple(
        (name_of(at), "clusterapi", "2", "0..5", "78%", "62%", f"4 pods of {name_of(at)} wait")
        for at in range(8)
    ),
    spare=(1, 5, 4, 3),
    shown_by="-o wide",
)


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 160])
def test_rows_with_long_names_take_three_lines_at_most(
    width: int, terminal: Callable[..., list[str]]
) -> None:
    assert {len(name_of(at)) for at in range(8)} == {63}
    lines = terminal(LONG, width=width)
    assert max(map(columns, lines)) <= width
    note = next((at for at, line in enumerate(lines) if line.startswith("(")), len(lines))
    assert note <= 1 + 3 * 8
    first_words = [line.split()[0] for line in lines[1:note] if not line.startswith(" ")]
    assert len(set(first_words)) == 8
    names = [name_of(at) for at in range(8)]
    for word, name in zip(first_words, names, strict=True):
        assert word == name or [other for other in names if is_fold_of(word, other)] == [name]


def test_columns_are_left_out_by_their_order_and_named(terminal: Callable[..., list[str]]) -> None:
    shown_at = {}
    for width in (200, 120, 90, 80, 64):
        head, *lines = terminal(LONG, width=width)
        shown_at[width] = head.split()
        left_out = [name for name in map(str.upper, LONG.columns) if name not in head.split()]
        verb = "shows it" if len(left_out) == 1 else "shows them"
        line = f"({', '.join(left_out)}: no room on this terminal; -o wide {verb})"
        assert " ".join(lines).endswith(line) is bool(left_out)
        order = ["PROVIDER", "MEMORY", "CPU", "MIN..MAX"]
        assert set(left_out) == set(order[: len(left_out)])
    assert [len(shown_at[width]) for width in shown_at] == sorted(
        map(len, shown_at.values()), reverse=True
    )
    assert len(shown_at[200]) == 7
    assert len(shown_at[64]) < 7


def test_whole_table_folds_no_name(terminal: Callable[..., list[str]]) -> None:
    whole = msgspec.structs.replace(LONG, spare=(), is_whole=True)
    assert "…" not in "\n".join(terminal(whole, width=120))


def test_addresses_are_not_folded(terminal: Callable[..., list[str]]) -> None:
    address = f"https://{'a' * 30}.example/api/ui"
    table = Table(("setting", "value", "from"), (("page", address, name_of(1)),))
    assert address in "\n".join(terminal(table, width=80))


def test_no_column_of_sentences_is_squeezed(terminal: Callable[..., list[str]]) -> None:
    rows = tuple(
        (
            f"group-{at}",
            "2",
            "0..5",
            "+1 -> 3",
            f"shop/web-7f9c{at}, shop/web-8a{at} and 3 more",
            why,
        )
        for at, why in enumerate(["3 for 12 pods, waste 0.20", "node(s) didn't match the selector"])
    )
    titles = ("group", "size", "min..max", "change", "pods", "best option")
    table = Table(titles, rows, notes=frozenset({4}), spare=(2, 1))
    lines = terminal(table, width=80)
    assert lines[1].endswith("3 for 12 pods, waste 0.20")
    assert lines[2] == "  pods: shop/web-7f9c0, shop/web-8a0 and 3 more"
    assert len(lines) == 5


def test_rows_that_follow_a_table_have_its_columns(
    terminal: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = terminal(LONG, width=80)
    out = Terminal()
    GrowingTable(LONG, out).add(msgspec.structs.replace(LONG, rows=LONG.rows[2:4]))
    lines = out.getvalue().splitlines()
    assert [line.split()[1] for line in lines if not line.startswith(" ")] == ["2", "2"]
    assert max(map(columns, lines)) <= 80
    assert lines[0].index("2") == first[1].index("2") or "…" in lines[0]


def test_table_without_its_head_has_rows_only(terminal: Callable[..., list[str]]) -> None:
    bare = msgspec.structs.replace(GROUPS, has_head=False)
    assert terminal(bare, width=100) == terminal(GROUPS, width=100)[1:]
    assert [line.split()[0] for line in shown(bare).splitlines()] == [
        "workers",
        "burst-g7",
        "render-sks",
    ]
