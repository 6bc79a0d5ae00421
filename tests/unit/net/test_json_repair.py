"""One value that no decoder accepts costs only the object that contains it;
invalid JSON is still refused.
"""

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
def test_json_repair_undecodable_value_leaves_other_objects_unchanged(value: bytes) -> None:
    found = read_json(
        b'{"items": [{"a": 1}, {"a": ' + value + b'}, {"a": "x\\u00e9\\ud83d\\ude00"}]}'
    )
    assert found["items"][0] == {"a": 1}
    assert found["items"][2] == {"a": "x\u00e9\U0001f600"}
    assert not isinstance(found["items"][1]["a"], int | float)


@each_row(
    "text", [b"", b"{", b'{"a": 1e999', b'{"a": "' + b"\\", b"[1e999,]", b"1-2", b"[-]", b"nul"]
)
def test_json_repair_still_refuses_invalid_json(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(text)


@each_row("text", [b'{"a": "[1e999]"}', b'["\\"[", "{", "1e999"]', b'{"1e999": -0.5}'])
def test_json_repair_ignores_values_inside_strings(text: bytes) -> None:
    assert decode_repaired(text, object) == msgspec.json.decode(text)


def test_json_repair_refuses_an_oversized_document() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(b"[" + b"1," * 600_000 + b"1e999]")
