"""`outscaler ui`: who may see the page, and how the command ends."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chalicelib.cli import ui_server
from chalicelib.cli.main import main
from chalicelib.cli.ui_server import PageServer
from chalicelib.page.links import Links
from chalicelib.page.pages import PageRequest, respond
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.example_clusters import NOW, example


@contextmanager
def opened(clock: ManualClock | None = None) -> Iterator[PageServer]:
    """A running server of the example."""
    store, links = example(), Links()
    server = PageServer(0, lambda request: respond(store, request, NOW, links), clock or ManualClock(0.0))
    server.timeout = 0.05
    thread = threading.Thread(target=server.serve_until_idle, args=(1800.0,))
    with server:
        thread.start()
        try:
            yield server
        finally:
            if isinstance(server.clock, ManualClock):
                server.clock.advance(10_000.0)
            thread.join(10)
            assert not thread.is_alive()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; headers with _ for -."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in given)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def entered(server: PageServer) -> str:
    """The cookie, after the token was used."""
    _, headers, _ = ask(server, f"/open/{server.token}")
    return headers["Set-Cookie"].partition(";")[0]


def test_token_of_the_address_is_exchanged_once_for_a_cookie() -> None:
    with opened() as server:
        token = server.token
        assert server.address == f"http://{server.host}/open/{token}"
        status, headers, body = ask(server, f"/open/{token}", Sec_Fetch_Site="none")
        assert (status, headers["Location"], body) == (303, "/", b"")
        assert headers["Set-Cookie"].endswith("; HttpOnly; SameSite=Strict; Path=/")
        assert token not in headers["Set-Cookie"]
        assert ask(server, f"/open/{token}")[0] == 403
        assert ask(server, "/open/")[0] == 403
        status, headers, body = ask(server, "/", Cookie=headers["Set-Cookie"].partition(";")[0])
        assert (status, b"<h1>Clusters</h1>" in body) == (200, True)
        assert "Access-Control-Allow-Origin" not in headers


def test_page_is_refused_without_saying_what_exists() -> None:
    with opened() as server:
        cookie = entered(server)
        assert ask(server, "/clusters/prod")[::2] == ask(server, "/clusters/nope")[::2] == (401, b"")
        assert ask(server, "/", Cookie=cookie[:-1] + ("a" if cookie[-1] != "a" else "b"))[0] == 401
        assert ask(server, "/", Cookie="outscaler=")[0] == 401
        assert ask(server, "/", Cookie="\x01")[0] in (400, 401)
        assert ask(server, "/", Cookie=cookie, Host="evil.example:80")[0] == 421
        assert ask(server, "/", Cookie=cookie, Host=f"localhost:{server.server_address[1]}")[0] == 421
        for site in ("cross-site", "same-site"):
            assert ask(server, "/", Cookie=cookie, Sec_Fetch_Site=site)[0] == 403
        assert ask(server, "/", Cookie=cookie, Sec_Fetch_Site="same-origin")[0] == 200


def test_only_get_and_head_are_answered() -> None:
    with opened() as server:
        cookie = entered(server)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
            assert ask(server, "/", method, Cookie=cookie)[0] == 501
        status, headers, body = ask(server, "/", "HEAD", Cookie=cookie)
        assert (status, body, int(headers["Content-Length"]) > 1000) == (200, b"", True)


def test_every_answer_has_the_security_headers() -> None:
    with opened() as server:
        for path, status in (("/", 401), (f"/open/{server.token}", 303), ("/open/x", 403)):
            found, headers, _ = ask(server, path)
            assert (found, headers["Cache-Control"], "default-src 'none'" in headers["Content-Security-Policy"]) == (
                status,
                "no-store",
                True,
            )


def test_query_of_any_kind_is_answered() -> None:
    with opened() as server:
        cookie = entered(server)
        assert ask(server, "/clusters/prod/nodes?" + "a=1&" * 50, Cookie=cookie)[0] == 400
        assert ask(server, "/clusters/prod/nodes?q=%FF%00%3Cscript%3E", Cookie=cookie)[0] == 200
        assert ask(server, "//evil.example/x", Cookie=cookie)[0] in (200, 404)
        assert ask(server, "/clusters/%2e%2e/x", Cookie=cookie)[0] == 404


def test_connections_at_the_same_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_server, "AT_ONCE", 2)
    busy, go = threading.Semaphore(0), threading.Event()

    def slow(request: PageRequest) -> object:
        busy.release()
        go.wait(10)
        return respond(store, request, NOW, Links())

    store = example()
    with opened() as server:
        cookie = entered(server)
        server.answer = slow  # type: ignore[assignment]
        results: list[int] = []
        threads = [
            threading.Thread(target=lambda: results.append(ask(server, "/", Cookie=cookie)[0])) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert busy.acquire(timeout=10)
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(server, "/", Cookie=cookie)
        go.set()
        for thread in threads:
            thread.join(10)
        assert results == [200, 200]


def test_command_ends_after_half_an_hour_without_a_request() -> None:
    clock = ManualClock(0.0)
    with opened(clock) as server:
        clock.advance(1700.0)
        assert ask(server, "/", Cookie=entered(server))[0] == 200
        clock.advance(1700.0)
        assert ask(server, "/healthz")[0] == 401  # an unauthorized request does not keep it alive
    # `opened` checks that the thread has ended


@pytest.mark.parametrize(
    ("arguments", "says"),
    [("ui --port x", "'x' is not a port from 0 to 65535"), ("ui", "--table: is not given")],
)
def test_ui_that_cannot_start_is_one_line(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OUTSCALER_TABLE", "OUTSCALER_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUTSCALER_PROFILE", "/nonexistent/profile.json")
    assert main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert (says in said, said.count("\n")) == (True, 1)
