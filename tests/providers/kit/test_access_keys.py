"""Fields of a secret with keys, and the temporary keys of a process."""

from __future__ import annotations

import re

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret
from chalicelib.providers.kit.access_keys import (
    AccessKey,
    SecretFormat,
    TemporaryKeys,
    name_value_lines,
    secret_fields,
)
from chalicelib.providers.kit.errors import ProviderError, Throttled, Transient, Unauthorized
from tests.cases import each_row

FORM = SecretFormat(
    fields={"apikey": "key", "apisecret": "secret", "role": "role", "zone": None},
    written={"key": "apiKey", "secret": "apiSecret"},
    known="apiKey, apiSecret and role",
    remedy="write it as shown",
    lines=lambda text, place: name_value_lines(text.splitlines(), place, "write it as shown"),
    prefix=re.compile("CLOUD_"),
    longest={"secret": 10},
)


@each_row(
    "text",
    [
        '{"apiKey": "a", "api-secret": "b"}',
        '\ufeff {"API_KEY": " a\\n", "CLOUD_API_SECRET": "b", "zone": "x y", "role": null}',
        "api-key=a\napi secret = 'b'\nzone=\"x\"",
        '{"apiKey": "a", "api_key": "a", "apiSecret": "b", "role": " "}',
    ],
)
def test_all_forms_of_a_secret_are_equal(text: str) -> None:
    assert secret_fields(text, "here", FORM, ("key", "secret")) == {"key": "a", "secret": "b"}


@each_row(
    ("text", "problem"),
    [
        ("hush", "is neither JSON nor lines of name=value"),
        ("", "is neither JSON nor lines of name=value"),
        ("apiKey=a\nhush", "is neither JSON nor lines of name=value"),
        ('{"apiKey": "a"}', "apiSecret is missing"),
        ('{"apiSecret": "a", "apiKey": ""}', "apiKey is missing"),
        ('{"other": "hush"}', "other is not known"),
        ('{"hush1": "a"}', "a field is not known"),
        ('{"api-key": "hush hush"}', "apiKey contains spaces or special characters"),
        ('{"apiKey": "h\\u00fcsh"}', "apiKey contains spaces or special characters"),
        ('{"apiKey": "hush,hush"}', "apiKey contains spaces or special characters, or is too long"),
        (
            '{"apiSecret": "hushhushhush"}',
            "apiSecret contains spaces or special characters, or is too long",
        ),
        ('{"role": "a hush"}', "role contains spaces or special characters"),
        ('{"apiKey": "hush", "api-key": "hushh"}', "apiKey is given twice with different values"),
        ('{"role": "hush", "ROLE": "hushh"}', "ROLE is given twice with different values"),
    ],
)
def test_unusable_secret_is_refused_by_its_field(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as raised:
        secret_fields(text, "here", FORM, ("key", "secret"))
    assert (raised.value.place, raised.value.problem) == ("here", problem)
    assert "hush" not in str(raised.value)


def test_text_that_is_no_key_may_have_other_characters() -> None:
    assert secret_fields('{"role": "acs:ram::1:role/a,b"}', "here", FORM) == {
        "role": "acs:ram::1:role/a,b"
    }


def made(name: str, obtained: float = 0.0, expires: float = 3600.0) -> AccessKey:
    return AccessKey(Secret(name), Secret("s"), Secret("t"), obtained, expires)


def failing(error: Exception) -> AccessKey:
    raise error


def store() -> TemporaryKeys[AccessKey]:
    return TemporaryKeys(lambda key: key.expires - 600.0, (Transient, Throttled))


def test_keys_are_made_anew_when_they_are_due() -> None:
    keys, first, second = store(), made("a"), made("b", 3000.0, 6600.0)
    assert keys.get("x", 0.0, lambda: first) is first
    assert keys.get("x", 2999.0, lambda: second) is first
    assert keys.get("y", 2999.0, lambda: second) is second
    assert keys.get("x", 3000.0, lambda: second) is second


@each_row(
    ("now", "error", "uses_old"),
    [
        (3000.0, Transient("a"), True),
        (3539.0, Throttled("a"), True),
        (3540.0, Transient("a"), False),
        (3000.0, Unauthorized("a"), False),
    ],
)
def test_old_keys_are_used_while_there_are_no_new_ones(
    now: float, error: ProviderError, uses_old: bool
) -> None:
    keys, first = store(), made("a")
    keys.get("x", 0.0, lambda: first)
    if not uses_old:
        with pytest.raises(type(error)):
            keys.get("x", now, lambda: failing(error))
        return
    assert keys.get("x", now, lambda: failing(error)) is first
    assert keys.get("x", now + 29.0, lambda: failing(AssertionError("too soon"))) is first
    second = made("b", now, now + 3600.0)
    assert keys.get("x", now + 30.0, lambda: second) is second


def test_clock_that_goes_back_keeps_no_keys_alive() -> None:
    keys, first, second = store(), made("a", 1000.0, 4600.0), made("b", 0.0)
    keys.get("x", 1000.0, lambda: first)
    assert keys.get("x", 940.0, lambda: second) is first
    assert keys.get("x", 939.0, lambda: second) is second
    keys.get("z", 1000.0, lambda: first)
    with pytest.raises(Transient):
        keys.get("z", 939.0, lambda: failing(Transient("a")))


def test_refused_keys_are_dropped_unless_others_have_replaced_them() -> None:
    keys, first, second = store(), made("a"), made("b")
    keys.drop("x", first)
    keys.get("x", 0.0, lambda: first)
    keys.drop("x", second)
    assert keys.get("x", 1.0, lambda: second) is first
    keys.drop("x", made("a", 5.0))
    assert keys.get("x", 1.0, lambda: second) is second


def test_number_of_keys_is_limited_and_expired_ones_go_first() -> None:
    keys, old, valid = store(), made("a", 0.0, 700.0), made("b", 0.0, 9000.0)
    for number in range(255):
        keys.get(f"old-{number}", 0.0, lambda: old)
    keys.get("valid", 0.0, lambda: valid)
    keys.get("more", 800.0, lambda: valid)
    assert keys.get("valid", 801.0, lambda: failing(AssertionError("was dropped"))) is valid
    assert keys.get("old-0", 801.0, lambda: valid) is valid
