"""What Kubernetes takes as a label."""

from __future__ import annotations

from chalicelib.model.label_syntax import is_label_key, is_label_value
from tests.cases import each_row


@each_row(
    ("key", "good"),
    [
        ("a", True),
        ("a.b/c_d", True),
        ("x" * 63, True),
        ("a" * 253 + "/b", True),
        ("", False),
        ("/a", False),
        ("A.b/c", False),
        ("a..b/c", False),
        ("a b", False),
        ("a/", False),
        ("a/b/c", False),
        ("x" * 64, False),
        ("a" * 254 + "/b", False),
        ("acs:x", False),
        ("ä", False),
        ("a\n", False),
    ],
)
def test_key_of_a_label(key: str, good: bool) -> None:
    assert is_label_key(key) is good


@each_row(
    ("value", "good"),
    [
        ("", True),
        ("a-b.c_D", True),
        ("-a", False),
        ("a b", False),
        ("x" * 64, False),
        ("a\n", False),
    ],
)
def test_value_of_a_label(value: str, good: bool) -> None:
    assert is_label_value(value) is good
