"""`outscaler ui`: who may see the page, and how the command ends."""

from __future__ import annotations

import html
import http.client
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from chalicelib.cli.deployment_settings import known_settings
from chalicelib.cli.main import main
from chalicelib.cli.ui_server import AT_ONCE, PageServer
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.page.render import Links
from chalicelib.page.routes import PageAnswer, PageRequest, respond
from chalicelib.policy.load import digest
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.example_clusters import NOW, decided, example, quiet_plan
from infra.emulators.memory_table import MemoryAccount

PATIENCE = 120.0
"""Seconds that nothing takes, on a machine however busy."""


@contextmanager
def opened(clock: ManualClock | None = None) -> Iterator[PageServer]:
    """A running server of the example."""
    store = example()
    server = PageServer(
        0,
        lambda request, links: respond(store, request, NOW, links, STRICT),
        clock or ManualClock(0.0),
    )
    server.timeout = 0.05
    thread = threading.Thread(target=server.serve_until_idle, args=(1800.0,))
    with server:
        thread.start()
        try:
            yield server
        finally:
            if isinstance(server.clock, ManualClock):
                server.clock.advance(10_000.0)
            thread.join(PATIENCE)
            assert not thread.is_alive()


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; path: below the random one; headers with _ for -."""
    return ask_whole(server, server.links.base + path, method, **headers)


def ask_whole(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; path: as the browser sends it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=PATIENCE)
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
        base = server.links.base
        assert server.address == f"http://{server.host}{base}/open/{token}"
        status, headers, body = ask(server, f"/open/{token}", Sec_Fetch_Site="none")
        assert (status, headers["Location"], body) == (303, base, b"")
        assert headers["Set-Cookie"].endswith(f"; HttpOnly; SameSite=Strict; Path={base}")
        assert token not in headers["Set-Cookie"]
        assert ask(server, f"/open/{token}")[0] == 403
        assert ask(server, "/open/")[0] == 403
        status, headers, body = ask_whole(
            server, base, Cookie=headers["Set-Cookie"].partition(";")[0]
        )
        assert (status, b"<h1>Clusters</h1>" in body) == (200, True)
        assert "Access-Control-Allow-Origin" not in headers


def test_used_address_is_a_page_that_says_what_to_do() -> None:
    with opened() as server:
        token = server.token
        cookie = entered(server)
        status, headers, body = ask(server, f"/open/{token}")
        assert (status, headers["Content-Type"]) == (403, "text/html; charset=utf-8")
        assert b"run <code>outscaler ui</code> again" in body
        assert b"outscaler login STACK" in body
        status, headers, _ = ask(server, f"/open/{token}", Cookie=cookie)
        assert (status, headers["Location"]) == (303, server.links.base), "it has the session"
        assert "Set-Cookie" not in headers
        assert ask(server, "/", Cookie=cookie, Sec_Fetch_Site="cross-site")[::2] == (403, b"")


def test_page_is_refused_without_saying_what_exists() -> None:
    with opened() as server:
        cookie = entered(server)
        known, unknown = ask(server, "/clusters/prod"), ask(server, "/clusters/nope")
        assert known[::2] == unknown[::2]
        assert known[0] == 401
        assert b"prod" not in known[2]
        assert ask(server, "/", Cookie=cookie[:-1] + ("a" if cookie[-1] != "a" else "b"))[0] == 401
        assert ask(server, "/", Cookie="outscaler=")[0] == 401
        assert ask(server, "/", Cookie="\x01")[0] in (400, 401)
        assert ask(server, "/", Cookie=cookie, Host="evil.example:80")[0] == 421
        assert (
            ask(server, "/", Cookie=cookie, Host=f"localhost:{server.server_address[1]}")[0] == 421
        )
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
            assert (
                found,
                headers["Cache-Control"],
                "default-src 'none'" in headers["Content-Security-Policy"],
            ) == (
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


def test_servers_on_other_ports_do_not_receive_the_cookie() -> None:
    with opened() as server, opened() as other:
        cookie = entered(server)
        assert len(server.links.base) > 30
        assert server.links.base != other.links.base
        assert ask(server, "/", Cookie=cookie)[0] == 200
        assert ask(other, "/", Cookie=cookie)[0] == 401
        # set by other servers
        assert ask(server, "/", Cookie=f"outscaler=x; =; {cookie}; outscaler=\xe9")[0] == 200


def test_nothing_is_outside_the_random_path() -> None:
    with opened() as server:
        cookie, base = entered(server), server.links.base
        outside = (
            "/",
            "//",
            "/clusters/prod",
            "/open/x",
            f"{base}x",
            base[:-1],
            base.upper(),
            f"/x{base}",
        )
        for path in outside:
            status, _, body = ask_whole(server, path, Cookie=cookie)
            assert (path, status, body) == (path, 404, b"")


def test_every_link_of_a_page_is_below_the_random_path() -> None:
    with opened() as server:
        cookie, base = entered(server), server.links.base
        pages, seen = [base], set[str]()
        while pages:
            page = pages.pop()
            seen.add(page)
            status, _, body = ask_whole(server, page, Cookie=cookie)
            assert (page, status) == (page, 200)
            found = {
                html.unescape(link)
                for link in re.findall(r'(?:href|action|url)="?(/[^"]*)"', body.decode())
            }
            assert all(link == base or link.startswith((f"{base}/", f"{base}?")) for link in found)
            pages += [link for link in found - seen if link not in pages and "?" not in link]
        assert len(seen) > 10


def test_files_of_the_page_are_below_the_random_path_and_need_the_cookie() -> None:
    with opened() as server:
        cookie = entered(server)
        _, _, body = ask(server, "/", Cookie=cookie)
        addresses = re.findall(r'(?:src|href)="([^"]*/static/[^"]+)"', body.decode())
        assert len(addresses) == 3
        for address in addresses:
            assert address.startswith(f"{server.links.base}/static/")
            status, headers, content = ask_whole(server, address, Cookie=cookie)
            assert (status, headers["Cache-Control"], len(content) > 1000) == (
                *(200, "public, max-age=31536000, immutable", True),
            )
            assert ask_whole(server, address)[0] == 401


def dripping(server: PageServer) -> socket.socket:
    """A connection that has sent a part of its request."""
    connection = socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=PATIENCE)
    connection.sendall(f"GET {server.links.base} HTTP/1.1\r\nHost:".encode())
    return connection


def test_new_connection_closes_the_oldest_incomplete_request() -> None:
    with opened() as server, ExitStack() as stack:
        cookie = entered(server)
        held = [stack.enter_context(dripping(server)) for _ in range(3 * AT_ONCE)]
        assert ask(server, "/", Cookie=cookie)[0] == 200
        closed = held[: 2 * AT_ONCE + 1]
        assert [connection.recv(1) for connection in closed] == [b""] * len(closed)
        for connection in held[2 * AT_ONCE + 1 :]:  # the others were left alone
            connection.sendall(f"{server.host}\r\n\r\n".encode())
            assert connection.recv(12) == b"HTTP/1.0 401"


def test_request_must_be_complete_within_ten_seconds() -> None:
    clock = ManualClock(0.0)
    with opened(clock) as server, dripping(server) as slow:
        cookie = entered(server)  # connections are accepted in order, so `slow` was before
        clock.advance(9.0)
        slow.sendall(b" ")
        with dripping(server) as later:
            assert ask(server, "/", Cookie=cookie)[0] == 200
            clock.advance(1.0)
            assert slow.recv(1) == b""
            later.sendall(f"{server.host}\r\n\r\n".encode())
            assert later.recv(12) == b"HTTP/1.0 401"


def test_complete_requests_are_bounded_and_the_next_one_waits() -> None:
    busy, go = threading.Semaphore(0), threading.Event()
    most: list[int] = []
    running: list[PageRequest] = []

    def slow(request: PageRequest, links: Links) -> PageAnswer:
        running.append(request)
        most.append(len(running))
        busy.release()
        go.wait(PATIENCE)
        running.pop()
        return respond(store, request, NOW, links, STRICT)

    store = example()
    with opened() as server, ThreadPoolExecutor(AT_ONCE + 1) as pool:
        cookie = entered(server)
        server.answer = slow
        answers = []
        for _ in range(AT_ONCE):
            answers.append(pool.submit(ask, server, "/", Cookie=cookie))
            assert busy.acquire(timeout=PATIENCE)
        answers.append(pool.submit(ask, server, "/", Cookie=cookie))
        go.set()
        assert [answer.result()[0] for answer in answers] == [200] * (AT_ONCE + 1)
        assert max(most) == AT_ONCE


def test_command_ends_after_half_an_hour_without_a_request() -> None:
    clock = ManualClock(0.0)
    with opened(clock) as server:
        clock.advance(1700.0)
        assert ask(server, "/", Cookie=entered(server))[0] == 200
        clock.advance(1700.0)
        assert ask(server, "/healthz")[0] == 401  # an unauthorized request does not keep it alive
    # `opened` checks that the thread has ended


def test_page_shows_what_the_deployment_judges_whatever_the_shell_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryAccount().store("outscaler-live", clock=lambda: NOW)
    deployed = Deployment(
        "outscaler/live/", frozenset({"outscaler/live/all/exoscale"}), frozenset({"proxy.example"})
    )
    store.deployment_settings().publish(deployed)
    document = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: mine}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/live/mine/kubeconfig}
  providers:
    exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/live/all/exoscale, endpoint: \
'https://proxy.example'}
"""
    store.policies.put("mine", document, digest(document), None)
    decided(store, "mine", quiet_plan("mine", NOW - 60), NOW - 5)
    pages = set()
    for shell in (
        {},
        {"OUTSCALER_PREFIX": "other", "OUTSCALER_SECRET_PREFIX": "elsewhere/"},
        {"OUTSCALER_SHARED_SECRETS": ""},
    ):
        for name in ("OUTSCALER_PREFIX", "OUTSCALER_SECRET_PREFIX", "OUTSCALER_SHARED_SECRETS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in shell.items():
            monkeypatch.setenv(name, value)
        for judged in (known_settings(store), deployed):  # `outscaler ui`, and the functions' own
            pages.add(respond(store, PageRequest("/clusters/mine", {}), NOW, Links(), judged).body)
    [page] = pages
    assert b'<span class="tag ok big">ok</span>' in page
    assert b"not read" not in page
    assert b"Not judged here" not in page


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
