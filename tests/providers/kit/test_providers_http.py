"""The HTTP helper against a real socket: retries, refusals, and the contents of errors."""

from __future__ import annotations

import email.utils
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.secret import Secret
from chalicelib.providers.kit import errors
from chalicelib.providers.kit.errors import class_for
from chalicelib.providers.kit.http import Http, Limits, VendorRequest, VendorResponse, retry_after
from chalicelib.providers.kit.services import ProviderServices
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.scripted_http_server import HttpScript, Reply
from infra.emulators.tcp_servers import ByteScript, drip
from tests.cases import each_row

NOW = 1_800_000_000.0
KEY = "not-to-be-seen"


class Thing(msgspec.Struct):
    name: str


class Waits:
    """Stands in for sleeping."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def client(
    waits: Waits | None = None,
    *,
    chance: Callable[[], float] = lambda: 1.0,
    deployment: Deployment = LOOPBACK,
    **more: Any,
) -> Http:
    services = ProviderServices(sleep=waits or Waits(), chance=chance, deployment=deployment)
    return Http("exoscale", services, lambda: NOW, **more)


def get(
    server: HttpScript, path: str = "/things", *, safe: bool = True, **more: Any
) -> VendorRequest:
    return VendorRequest("GET", server.url + path, safe=safe, **more)


def test_provider_http_answer_is_returned_completely() -> None:
    with HttpScript([Reply(200, {"name": "a"}, {"X-Request-Id": "r-1"})]) as server:
        answer = client().send(get(server, params={"zone": "z 1"}, headers={"X-Key": "v"}))
        assert answer.read(Thing) == Thing("a")
        assert (answer.status, answer.headers["x-request-id"]) == (200, "r-1")
        [seen] = server.requests
        assert (seen.path, dict(seen.query), seen.headers["x-key"]) == (
            "/things",
            {"zone": "z 1"},
            "v",
        )


@each_row(
    "trouble", [Reply(503), Reply(hang_up=True), Reply(429), Reply(200, {"name": "a"}, cut=3)]
)
def test_provider_http_safe_call_is_retried_with_growing_delays(trouble: Reply) -> None:
    waits = Waits()
    with HttpScript([trouble, trouble, Reply(200, {"name": "a"})]) as server:
        assert client(waits).send(get(server)).read(Thing) == Thing("a")
        assert len(server.requests) == 3
    assert waits.seconds == [0.25, 0.5]


def test_provider_http_retries_of_a_safe_call_are_bounded() -> None:
    with HttpScript(lambda _: Reply(503)) as server:
        with pytest.raises(errors.Transient):
            client(limits=Limits(attempts=4)).send(get(server))
        assert len(server.requests) == 4


@each_row(
    "trouble", [Reply(503), Reply(hang_up=True), Reply(429), Reply(200, {"name": "a"}, cut=3)]
)
def test_provider_http_call_not_declared_safe_is_sent_once(trouble: Reply) -> None:
    with HttpScript(lambda _: trouble) as server:
        with pytest.raises((errors.Transient, errors.Throttled)):
            client().send(VendorRequest("POST", server.url + "/things", body=b"{}"))
        assert len(server.requests) == 1


def test_provider_http_refusal_is_not_retried() -> None:
    with HttpScript(lambda _: Reply(403)) as server:
        with pytest.raises(errors.Unauthorized):
            client().send(get(server))
        assert len(server.requests) == 1


def test_provider_http_jitter_is_up_to_half_of_a_delay() -> None:
    waits = Waits()
    with HttpScript([Reply(503), Reply(200)]) as server:
        client(waits, chance=lambda: 0.0).send(get(server))
    assert waits.seconds == [0.125]


@each_row("header", ["4", email.utils.formatdate(NOW + 4, usegmt=True)])
def test_provider_http_short_retry_after_is_awaited(header: str) -> None:
    waits = Waits()
    with HttpScript([Reply(429, headers={"Retry-After": header}), Reply(200)]) as server:
        client(waits).send(get(server))
    assert waits.seconds == [4.0]


def test_provider_http_long_retry_after_is_raised_to_the_caller() -> None:
    waits = Waits()
    with HttpScript(lambda _: Reply(429, headers={"Retry-After": "120"})) as server:
        with pytest.raises(errors.Throttled) as raised:
            client(waits).send(get(server))
        assert len(server.requests) == 1
    assert raised.value.retry_after == 120.0
    assert waits.seconds == []


@each_row(
    ("text", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        (email.utils.formatdate(NOW + 90, usegmt=True), 90.0),
        (email.utils.formatdate(NOW - 90, usegmt=True), 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("Fri, 99 Nov 2026 00:00:00 GMT", 0.0),
    ],
)
def test_provider_http_retry_after_formats(text: str, seconds: float) -> None:
    assert retry_after(text, NOW) == seconds


@each_row(
    ("status", "cls"),
    [
        (None, "Transient"),
        (0, "Transient"),
        (302, "Unknown"),
        (400, "InvalidRequest"),
        (401, "Unauthorized"),
        (403, "Unauthorized"),
        (404, "NotFound"),
        (408, "Transient"),
        (409, "Conflict"),
        (412, "Conflict"),
        (418, "Unknown"),
        (422, "InvalidRequest"),
        (423, "Conflict"),
        (429, "Throttled"),
        (500, "Transient"),
        (501, "InvalidRequest"),
        (502, "Transient"),
        (599, "Transient"),
    ],
)
def test_provider_http_error_class_by_status(status: int | None, cls: str) -> None:
    assert class_for(status).__name__ == cls


def test_provider_http_vendor_code_takes_precedence_over_the_status() -> None:
    def explain(answer: VendorResponse) -> errors.ProviderError | None:
        return (
            errors.OutOfStock("none left", code="Sold.Out") if b"Sold.Out" in answer.body else None
        )

    with HttpScript([Reply(403, {"code": "Sold.Out"}), Reply(403, {"code": "Other"})]) as server:
        http = client(explain=explain)
        with pytest.raises(errors.OutOfStock) as raised:
            http.send(get(server))
        assert raised.value.code == "Sold.Out"
        with pytest.raises(errors.Unauthorized):
            http.send(get(server))


@each_row(
    ("reply", "cls"),
    [
        (
            Reply(200, "<html>maintenance</html>", {"Content-Type": "text/html; charset=utf-8"}),
            errors.Transient,
        ),
        (Reply(200, '{"name": "a'), errors.Transient),
        (Reply(200, ""), errors.Transient),
        (Reply(200, {"title": "a"}), errors.Unknown),
    ],
)
def test_provider_http_malformed_answers(reply: Reply, cls: type[errors.ProviderError]) -> None:
    with HttpScript(lambda _: reply) as server, pytest.raises(cls):
        client().send(get(server, safe=False)).read(Thing)


def test_provider_http_endless_answer_is_cut_off() -> None:
    with (
        HttpScript(lambda _: Reply(200, b"x" * 5000)) as server,
        pytest.raises(errors.Transient, match="larger"),
    ):
        client(limits=Limits(bytes=1000)).send(get(server, safe=False))


@each_row(
    "part",
    [b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n"],
    ids=["headers", "body"],
)
def test_provider_http_trickling_answer_is_cut_off(part: bytes) -> None:
    with ByteScript(lambda: [part, *drip(b"x" * 400, 0.01)]) as server:
        with pytest.raises(errors.Transient, match=r"took longer than 0\.15 s in all"):
            client(limits=Limits(total=0.15)).send(VendorRequest("GET", server.url))
        assert server.closed.wait(600)


@each_row("status", [200, 302, 403])
def test_provider_http_unrequested_compression_is_refused(status: int) -> None:
    packed = Reply(
        status,
        gzip.compress(b"\0" * 1_000_000),
        {"Content-Encoding": "gzip", "Location": "/elsewhere"},
    )
    with HttpScript([packed]) as server:
        with pytest.raises(errors.ProviderError) as raised:
            client().send(get(server, safe=False))
        assert server.requests[0].headers["accept-encoding"] == "identity"
    assert (
        type(raised.value).__name__
        == {200: "Transient", 302: "Unknown", 403: "Unauthorized"}[status]
    )


def test_provider_http_answer_with_two_lengths_is_a_vendor_error() -> None:
    odd = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"
    with (
        ByteScript(lambda: [odd]) as server,
        pytest.raises(errors.Transient, match="not proper HTTP"),
    ):
        client().send(VendorRequest("POST", server.url))


def test_provider_http_vendor_messages_are_short_and_on_one_line() -> None:
    def explain(_: VendorResponse) -> errors.ProviderError:
        return errors.Unknown(
            "a\x1b[2J\u202eb\n" + "c" * 400, code="d\x00" * 200, request_id="e\n" * 200
        )

    with HttpScript([Reply(400)]) as server, pytest.raises(errors.Unknown) as raised:
        client(explain=explain).send(get(server))
    found = raised.value
    assert found.message.startswith("a [2J b c")
    assert (len(found.message), len(found.code), len(found.request_id)) == (300, 128, 128)
    assert all(text.isprintable() for text in (found.message, found.code, found.request_id))


def test_provider_http_redirect_is_not_followed() -> None:
    with HttpScript(lambda seen: Reply(302, headers={"Location": "/elsewhere"})) as server:
        with pytest.raises(errors.Unknown):
            client().send(get(server))
        assert [seen.path for seen in server.requests] == ["/things"]


def test_provider_http_every_attempt_is_signed_again() -> None:
    stamps = iter(["first", "second"])

    def sign(call: VendorRequest) -> VendorRequest:
        return msgspec.structs.replace(call, headers={**call.headers, "X-Stamp": next(stamps)})

    with HttpScript([Reply(503), Reply(200)]) as server:
        client(sign=sign).send(get(server))
        assert [seen.headers["x-stamp"] for seen in server.requests] == ["first", "second"]


def vendor_echo(seen: object) -> Reply:
    del seen
    return Reply(400, f"wrong signature for {KEY} " + "x" * 1000)


def echoed(answer: VendorResponse) -> errors.ProviderError:
    return errors.InvalidRequest(answer.body.decode())


@each_row(
    ("script", "explain"),
    [
        (vendor_echo, echoed),
        (lambda _: Reply(hang_up=True), lambda _: None),
        (lambda _: Reply(500), lambda _: None),
    ],
)
def test_provider_http_error_shows_no_secret(
    script: Callable[[object], Reply],
    explain: Callable[[VendorResponse], errors.ProviderError | None],
) -> None:
    with HttpScript(script) as server:
        http = client(secrets=lambda: (Secret(KEY),), explain=explain)
        call = get(
            server,
            safe=False,
            params={"Signature": KEY},
            headers={"Authorization": KEY},
            body=KEY.encode(),
        )
        with pytest.raises(errors.ProviderError) as raised:
            http.send(call)
    shown: list[BaseException] = [raised.value]
    while (cause := shown[-1].__cause__) is not None:
        shown.append(cause)
    assert not [each for each in shown if KEY in f"{each} {each!r} {vars(each)}"]
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    assert len(raised.value.message) <= 300


@each_row(
    "url", ["http://api.example.com/x", "ftp://api.example.com/x", "api.example.com", "https:///x"]
)
def test_provider_http_only_tls_leaves_this_machine(url: str) -> None:
    with pytest.raises(BadInput, match="https"):
        client().send(VendorRequest("GET", url))


def test_provider_http_unsendable_call_is_our_error_and_not_retried() -> None:
    with HttpScript([]) as server:
        with pytest.raises(errors.InvalidRequest) as raised:
            client().send(get(server, headers={"X-Key": f"{KEY}\nX-More: 1"}))
        assert server.requests == []
    assert KEY not in str(raised.value)


def test_provider_http_untrusted_certificate_is_refused_in_any_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority()
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(authority.pem)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(bundle))
    with HttpScript(lambda _: Reply(200), tls=authority.server("127.0.0.1")) as server:
        with pytest.raises(errors.Transient, match="SSLError"):
            client().send(get(server, safe=False))
        assert server.requests == []


def test_provider_http_ignores_netrc_and_environment_proxies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    with HttpScript([Reply(200)]) as plain:
        client().send(get(plain))
        assert plain.requests[0].credential == ""
    with ByteScript(lambda: [b"no TLS"], greets=True) as server:
        with pytest.raises(errors.Transient, match=r"SSLError|ConnectionError"):
            client().send(VendorRequest("GET", f"https://{server.host}/"))
        assert server.connections == 1  # not over the proxy


@each_row("host", ["169.254.169.254", "0xa9fea9fe", "[::ffff:169.254.169.254]", "168.63.129.16"])
def test_provider_http_refuses_metadata_service_addresses(host: str) -> None:
    permitted = Deployment(endpoints=frozenset({host}))
    with pytest.raises(errors.Transient, match="address is not allowed"):
        client(deployment=permitted).send(VendorRequest("GET", f"https://{host}/latest/meta-data/"))
