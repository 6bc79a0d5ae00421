"""Table output: plain and exact for pipes, formatted on a terminal, harmless for any text in a name."""

from __future__ import annotations

import io

import pytest

from chalicelib.command.output import Table, as_error, as_warning, columns, one_line, printable, show

TABLE = Table(("name", "size"), (("a", "1"), ("long-name", "200")), title="Groups", right=frozenset({1}))


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


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
    assert shown(Table(("n", "m"), (("日本", "1"), ("abcd", "2")))).splitlines() == ["N      M", "日本   1", "abcd   2"]
    assert [columns(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]


def test_cli_table_control_characters_do_not_reach_the_terminal() -> None:
    evil = "a\x1b[31mred\x07\u202egnp\n"
    for out in (io.StringIO(), Terminal()):
        text = shown(Table(("name",), ((evil,),), title=evil), text=evil, out=out)
        assert not {"\x07", "\u202e"} & set(text)
        assert "\x1b[31mred" not in text
    assert printable("plain") == "plain"
    assert one_line("a\nb\t c\x1b") == "a b c\N{REPLACEMENT CHARACTER}"


def test_cli_table_has_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shown(TABLE, out=Terminal()).startswith("\x1b[1mGroups\x1b[0m\nNAME        SIZE\n")
    monkeypatch.setenv("TERM", "dumb")
    assert shown(TABLE, out=Terminal()) == shown(TABLE)


def test_cli_colours_depend_on_terminal_and_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table(("severity", "size"), (("error", "+2 -> 4"), ("ok", "3")))
    assert "\x1b[31merror" in shown(table, out=Terminal())
    assert as_warning("careful", Terminal()) == "\x1b[33mcareful\x1b[0m"
    assert as_error("bad", io.StringIO()) == "bad"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in shown(table, out=Terminal())
    assert as_warning("careful", Terminal()) == "careful"
