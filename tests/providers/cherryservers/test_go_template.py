"""The supported part of Go's template language."""

from __future__ import annotations

import random

from chalicelib.model.errors import BadInput
from chalicelib.providers.cherryservers.pool_definition import parse_template
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import refused

VALUES = {"X": "one", "Y": "two"}


def filled(text: str) -> str:
    template = parse_template(text.encode(), tuple(VALUES), "t")
    return template.fill(VALUES).decode()


@each_row(
    ("text", "expected"),
    [
        ("", ""),
        ("plain } }} text {", "plain } }} text {"),
        ("{{.X}}", "one"),
        ("{{ .X }}", "one"),
        ("{{\n.X\t}}", "one"),
        ("a{{.X}}b{{.Y}}c", "aonebtwoc"),
        ("{{.X}}{{.X}}", "oneone"),
        ("a \n {{- .X}} b", "aone b"),
        ("a {{.X -}}\n\t b", "a oneb"),
        ("a {{- .X -}} b", "aoneb"),
        ("a {{.X -}} {{- .Y}}", "a onetwo"),
        ('{{"{{"}}', "{{"),
        ('{{ "{{.X}}" }}', "{{.X}}"),
        ("{{`{{ \\n }}`}}", "{{ \\n }}"),
        ('{{"a\\n\\"b\\x41\\101"}}', 'a\n"bAA'),
        ('{{"\\u00e4\\U0001F600"}}', "ä\U0001f600"),
        ('a {{- "" -}} b', "ab"),
        ("a{{/* note */}}b", "ab"),
        ("a {{- /* {{.Z}} */ -}} b", "ab"),
        ("{{/* a\nb */}}", ""),
        ("$PATH ${HOME} %{x} {x}", "$PATH ${HOME} %{x} {x}"),
    ],
)
def test_gotemplate_fields_literals_comments_and_trim_markers(text: str, expected: str) -> None:
    assert filled(text) == expected


@each_row(
    "action",
    [
        "{{.}}",
        "{{}}",
        "{{-}}",
        "{{- }}",
        "{{X}}",
        "{{if .X}}a{{end}}",
        "{{range .X}}",
        "{{.X | printf}}",
        "{{.X.Y}}",
        "{{.X .Y}}",
        "{{(.X)}}",
        "{{$.X}}",
        "{{- 3}}",
        "{{-3}}",
        "{{'a'}}",
        '{{printf "%s" .X}}',
        "{{.X-}}",
        "{{. X}}",
        '{{"a\nb"}}',
        '{{"a"b}}',
        "{{v1.local_hostname}}",
        '{{template "x"}}',
        "{{.1}}",
    ],
)
def test_gotemplate_other_actions_are_refused_with_their_position(action: str) -> None:
    message = refused(lambda: filled(f"first\nab{action}"))
    assert message.startswith("t: line 2, column 3: an action that is not supported here; ")
    assert '{{"{{"}}' in message


@each_row(
    ("text", "problem"),
    [
        ("{{.X", "{{ is not closed by }}"),
        ("{{", "{{ is not closed"),
        ("{{/* x }}", "comment"),
        ("{{/* x */ }}", "comment"),
        ("{{.Hostname}}", "there is no field Hostname; the fields are X, Y"),
        ('{{"\\q"}}', "escape"),
        ('{{"\\ud800"}}', "escape"),
        ('{{"\\U00110000"}}', "escape"),
        ("{{.x}}", "there is no field x"),
    ],
)
def test_gotemplate_syntax_errors_are_reported(text: str, problem: str) -> None:
    assert problem in refused(lambda: filled(text))


def test_gotemplate_used_fields_are_listed() -> None:
    assert parse_template(b'{{.Y}} {{"{{.X}}"}} {{/* .X */}}', tuple(VALUES), "t").fields == {"Y"}


def test_gotemplate_bytes_that_are_not_text_pass_unchanged() -> None:
    blob = bytes(range(256)) + b"{{.X}}" + b"\xff\xfe"
    assert (
        parse_template(blob, tuple(VALUES), "t").fill(VALUES) == bytes(range(256)) + b"one\xff\xfe"
    )


def test_gotemplate_values_are_not_expanded() -> None:
    assert parse_template(b"{{.X}}", ("X",), "t").fill({"X": "{{.X}}"}) == b"{{.X}}"


def test_gotemplate_error_never_shows_the_surrounding_text() -> None:
    for text in ("hunter2 {{ hunter2 }}", "hunter2 {{", "{{/* hunter2", '{{"hunter2\\q"}}'):
        assert "hunter2" not in refused(lambda text=text: filled(text))  # type: ignore[misc]


def test_gotemplate_arbitrary_text_is_read_or_refused() -> None:
    places: list[str] = []
    chance = random.Random(7)
    for _ in range(5000):
        text = "".join(
            chance.choice(["{{", "}}", "-", " ", ".X", '"', "`", "/*", "*/", "\\", "a", "\n"])
            for _ in range(chance.randrange(12))
        )
        try:
            filled(text)
        except BadInput as mistake:
            places.append(mistake.place)
    assert places
    assert all(place.startswith("t: line ") for place in places)
