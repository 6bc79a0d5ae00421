"""Test for an audit finding: an unbounded Retry-After must not stop anything forever."""

from __future__ import annotations

from chalicelib.cluster import errors as kube
from chalicelib.providers.kit.http import retry_after
from tests.cases import each_row

ENDLESS = ("9" * 400, "99999999999999999999", "86400")


@each_row("text", [*ENDLESS, "Wed, 21 Oct 9999 07:28:00 GMT"])
def test_vendor_retry_after_is_limited_to_an_hour(text: str) -> None:
    assert retry_after(text, 0.0) == 3600.0


@each_row("text", ENDLESS)
def test_kube_retry_after_is_limited_to_an_hour(text: str) -> None:
    assert kube.from_answer(429, b"", {"Retry-After": text}).retry_after == 3600.0
    body = b'{"kind":"Status","details":{"retryAfterSeconds":%s}}' % text.encode()
    assert kube.from_answer(429, body, {}).retry_after in (0.0, 3600.0)
