"""The grammar of upstream's configuration file."""

from __future__ import annotations

import random
import string

from chalicelib.model.errors import BadInput
from chalicelib.providers.cherryservers.gcfg import parse_gcfg, readable_sections
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import refused


def read(text: str) -> list[tuple[str, str | None, list[tuple[str, str | None]]]]:
    return [
        (each.name, each.sub, [(entry.key, entry.value) for entry in each.entries])
        for each in parse_gcfg(text, "config")
    ]


def value(written: str) -> str | None:
    """Returns the parsed value of `key` followed by this text."""
    [(_, _, [(key, found)])] = read(f"[s]\nkey{written}")
    assert key == "key"
    return found


def test_gcfg_sections_and_keys_ignore_case_and_subsections_do_not() -> None:
    text = '[GLOBAL]\nProject-ID=1\n[NodegroupDef "Pool2"]\nREGION = EU\n[nodegroupdef]\n'
    assert read(text) == [
        ("global", None, [("project-id", "1")]),
        ("nodegroupdef", "Pool2", [("region", "EU")]),
        ("nodegroupdef", None, []),
    ]


@each_row(
    ("written", "expected"),
    [
        ("=a", "a"),
        (" = a b \t", "a b"),
        ("=", ""),
        ("", None),
        (" ; note", None),
        ("=a;b", "a"),
        ("=a # b", "a"),
        ('="a;b"', "a;b"),
        ('=" a "', " a "),
        ('=" a " b ', " a  b"),
        ('=x"y"z', "xyz"),
        ('="" ', ""),
        (r"=a\\b", r"a\b"),
        (r'="say \"so\""', 'say "so"'),
        (r"=a\tb\nc", "a\tb\nc"),
        ("=a\\\n  b", "a  b"),
        ("=a\\\r\nb", "ab"),
        ("=a=b:c%d", "a=b:c%d"),
        ("=a\r\n", "a"),
        ("=ä 漢", "ä 漢"),
        ("=[x]", "[x]"),
        ("=a\\\n", "a"),
        ('="a;b" ; c', "a;b"),
        ("=  \\\n  a", "  a"),
    ],
)
def test_gcfg_values_are_parsed_as_by_git_config(written: str, expected: str | None) -> None:
    assert value(written) == expected


def test_gcfg_comments_empty_lines_and_a_byte_order_mark_are_ignored() -> None:
    assert read('\ufeff; a\n  # b\n\n\t[s "x"] ; c\n  key = 1\n') == [("s", "x", [("key", "1")])]
    assert read("") == []


def test_gcfg_subsection_may_have_quotes_and_spaces() -> None:
    assert read('[s  "a \\"b\\\\ c" ]')[0][1] == 'a "b\\ c'


@each_row(
    ("text", "line", "problem"),
    [
        ("key=1", 1, "before the first section"),
        ('[s]\nkey="a\nb"', 2, "quote that is not closed"),
        ("[s]\nkey=a\\q", 2, "backslash"),
        ('[s]\nkey="a\\', 2, "backslash"),
        ("[s] key=1", 1, "not a section's header"),
        ('[s ""]', 1, "not a section's header"),
        ('[s "x]', 1, "not a section's header"),
        ("[s x]", 1, "not a section's header"),
        ("[s.x]", 1, "not a section's header"),
        ('[s "a\\n"]', 1, "not a section's header"),
        ("[]", 1, "not a section's header"),
        ("[s]\n\nsome words", 3, "neither a section's header nor key=value"),
        ("[s]\n=1", 2, "neither"),
        ("[s]\n[", 2, "not a section's header"),
        ("[s]\nkey=a\0b", 2, "zero byte"),
    ],
)
def test_gcfg_invalid_file_is_refused_by_its_line(text: str, line: int, problem: str) -> None:
    message = refused(lambda: parse_gcfg(text, "config"))
    assert message.startswith(f"config: line {line}: ")
    assert problem in message


def test_gcfg_error_never_shows_the_line() -> None:
    for text in (
        "[s]\nhunter2 hunter2",
        "hunter2=1",
        '[s]\nk="hunter2',
        "[s]\nk=hunter2\\q",
        "[hunter2 x]",
    ):
        assert "hunter2" not in refused(lambda text=text: parse_gcfg(text, "config"))  # type: ignore[misc]


def test_gcfg_arbitrary_text_is_read_or_refused() -> None:
    places: list[str] = []
    chance = random.Random(5)
    letters = '[]"\\;# =\n\r\tab-_.\0é' + string.ascii_lowercase[:4]
    for _ in range(3000):
        text = "".join(chance.choice(letters) for _ in range(chance.randrange(30)))
        for written in (text, f"[s]\nk={text}"):
            try:
                parse_gcfg(written, "config")
            except BadInput as mistake:
                places.append(mistake.place)
    assert places
    assert all(place.startswith("config: line ") for place in places)


@each_row(
    ("text", "expected"),
    [
        ("[s]\nsome words\na=1\n", [("a", "1")]),
        ('[s]\na="1\nb=2', [("b", "2")]),
        ("[s]\na=b\0c\nb=2", [("b", "2")]),
        ("a=1\n[s]\nb=2", [("b", "2")]),
        ("[s]\na=1\n[x\nb=2\n", [("a", "1")]),
        ("[x\nb=2\n; c\n[s]\na=1 ; d", [("a", "1")]),
    ],
)
def test_gcfg_readable_lines_of_a_refused_file_are_read(
    text: str, expected: list[tuple[str, str]]
) -> None:
    refused(lambda: parse_gcfg(text, "config"))
    [section] = readable_sections(text)
    assert section.name == "s"
    assert [(entry.key, entry.value) for entry in section.entries] == expected


def test_gcfg_readable_sections_are_those_of_a_correct_file() -> None:
    text = '[GLOBAL]\nProject-ID=1\n[NodegroupDef "Pool2"]\nREGION = EU \\\n # c\n[s]\n'
    assert readable_sections(text) == parse_gcfg(text, "config")
