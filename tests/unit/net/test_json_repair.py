"""One value that no decoder takes costs only the object that holds it; what is no JSON stays refused."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.net.json_repair import decode_repaired, read_json
from tests.cases import each_row

DEEP = b"[" * 3_000 + b"]" * 3_000


@each_row(
    "value",
    [
        pytest.param(b"1e999", id="no-finite-number"),
        pytest.param(b"-" + b"9" * 5_000, id="5000-digits"),
        pytest.param(b'"\\ud800"', id="half-a-pair"),
        pytest.param(b'"\xff\xfe"', id="no-utf-8"),
        pytest.param(DEEP, id="nested-without-end"),
    ],
)
def test_a_value_that_no_decoder_takes_leaves_the_other_objects_as_they_are(value: bytes) -> None:
    found = read_json(b'{"items": [{"a": 1}, {"a": ' + value + b'}, {"a": "x\\u00e9\\ud83d\\ude00"}]}')
    assert found["items"][0] == {"a": 1}
    assert found["items"][2] == {"a": "x\u00e9\U0001f600"}
    assert not isinstance(found["items"][1]["a"], int | float)


@each_row("text", [b"", b"{", b'{"a": 1e999', b'{"a": "' + b"\\", b"[1e999,]", b"1-2", b"[-]", b"nul"])
def test_what_is_no_json_stays_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(text)


@each_row("text", [b'{"a": "[1e999]"}', b'["\\"[", "{", "1e999"]', b'{"1e999": -0.5}'])
def test_what_stands_inside_a_text_is_no_value(text: bytes) -> None:
    assert decode_repaired(text, object) == msgspec.json.decode(text)


def test_a_document_that_is_too_large_to_be_repaired_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(b"[" + b"1," * 600_000 + b"1e999]")
