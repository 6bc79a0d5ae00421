"""The hosted status page: links that work once, sessions that are signed,
and no answer without one.
"""

from __future__ import annotations

import dataclasses
import io
import random
import re
from collections.abc import Iterator

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.httpsession import URLLib3Session
from chalice.test import HTTPResponse as PageResponse
from urllib3 import HTTPResponse

from chalicelib.cli import deployments
from chalicelib.cli.commands import ui
from chalicelib.cli.main import main
from chalicelib.functions.hosted_page import (
    COOKIE,
    LINK,
    LINK_FOR,
    LONGEST,
    SESSION,
    SESSION_FOR,
    PageGrant,
    base_of,
    checked,
    keys_of,
    new_grant,
    written,
)
from chalicelib.model.errors import BadInput
from chalicelib.model.secret import SecretUnavailable
from chalicelib.page.assets import assets
from chalicelib.page.render import Links
from chalicelib.page.routes import PageRequest, respond
from chalicelib.runtime.runtime import install, runtime
from chalicelib.store import Store
from infra.emulators.aws_faults import AwsFaults, busy
from infra.emulators.aws_services import in_process
from tests.functional.app_client import AppClient

pytestmark = pytest.mark.filterwarnings("ignore:IAMAuthorizer is not a supported in local mode")

KEY, OLD = "k" * 40, "o" * 40
NOW = 1_795_000_000.0


@pytest.fixture
def page(desk: AppClient) -> Iterator[AppClient]:
    """The app of a deployment with a hosted page."""
    install(
        dataclasses.replace(
            desk.runtime, page_key="page-key", read_secret={"page-key": KEY}.__getitem__
        )
    )
    yield desk
    install(desk.runtime)


def post(page: AppClient, path: str) -> PageResponse:
    return page.client.http.post(path, headers={"Content-Type": "application/json"}, body=b"{}")


def link(page: AppClient, cluster: str = "") -> str:
    answer = post(page, f"/clusters/{cluster}/session" if cluster else "/ui/session")
    assert answer.status_code == 200
    return str(answer.json_body["link"])


def cookie_of(page: AppClient, cluster: str = "") -> str:
    answer = page.get(link(page, cluster))
    assert answer.status_code == 303
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


def seen(page: AppClient, path: str, cookie: str) -> tuple[int, str]:
    answer = page.client.http.get(path, headers={"Cookie": cookie} if cookie else {})
    return answer.status_code, answer.body.decode()


def test_link_opens_a_session_that_shows_the_pages(page: AppClient) -> None:
    name = page.cluster()
    answer = page.get(link(page))
    assert answer.headers["Location"] == "/ui"
    assert re.search(
        r"; Secure; HttpOnly; SameSite=Lax; Path=/; Max-Age=28800$", answer.headers["Set-Cookie"]
    )
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    status, text = seen(page, "/ui", cookie)
    assert (status, f'href="/ui/clusters/{name}"' in text) == (200, True)
    for path in ("", "/nodes", "/pods", "/history", "/policy"):
        status, text = seen(page, f"/ui/clusters/{name}{path}", cookie)
        assert (status, name in text) == (200, True), path


def test_answers_have_the_headers_of_the_local_page(page: AppClient) -> None:
    headers = page.client.http.get("/ui", headers={"Cookie": cookie_of(page)}).headers
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert (
        "default-src 'none'; script-src 'self'; style-src 'self'"
        in headers["Content-Security-Policy"]
    )
    assert headers["Cache-Control"] == "no-store"


def test_UI_1_without_a_session_every_path_gets_the_same_answer(page: AppClient) -> None:
    name = page.cluster()
    answers = {
        seen(page, path, cookie)
        for path in (
            "/ui",
            f"/ui/clusters/{name}",
            "/ui/clusters/unknown",
            f"/ui/clusters/{name}/nodes",
        )
        for cookie in ("", f"{COOKIE}=", f"{COOKIE}=x.y", "other=1", f'{COOKIE}="\\', "a" * 9000)
    }
    [(status, text)] = answers
    assert status == 401
    assert name not in text


def test_files_of_the_page_need_no_session_and_are_the_same_for_everybody(page: AppClient) -> None:
    _, refused = seen(page, "/ui", "")
    addresses = re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', refused)
    assert len(addresses) == 3
    for address in addresses:
        answer = page.get(address)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (
            200,
            "public, max-age=31536000, immutable",
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert page.get("/ui/static/page.js").status_code == 404


def test_deployment_without_a_page_serves_no_files(desk: AppClient) -> None:
    assert desk.get(f"/ui/static/{assets()['page.js'].name}").status_code == 404


def test_hosted_page_has_the_markup_of_the_local_one(page: AppClient) -> None:
    name = page.cluster()
    cookie = cookie_of(page)
    for path in ("/", f"/clusters/{name}", f"/clusters/{name}/nodes", f"/clusters/{name}/history"):
        _, hosted = seen(page, f"/ui{path}".rstrip("/"), cookie)
        local = respond(
            page.store, PageRequest(path, {}), page.clock(), Links("/ui"), page.runtime.deployment
        )
        assert hosted == local.body.decode()


def test_UI_2_link_works_once_and_for_a_minute(page: AppClient) -> None:
    used, late = link(page), link(page)
    assert page.get(used).status_code == 303
    assert page.get(used).status_code == 401
    page.clock.advance(LINK_FOR + 1)
    assert page.get(late).status_code == 401


def test_used_link_says_what_to_do_and_its_own_browser_gets_the_page(page: AppClient) -> None:
    used = link(page)
    cookie = str(page.get(used).headers["Set-Cookie"]).partition(";")[0]
    refused = page.get(used)
    text = refused.body.decode()
    assert refused.status_code == 401
    assert "it works once, within a minute" in text
    assert "outscaler ui --hosted" in text
    assert "outscaler login STACK" in text
    again = opened(page, used, cookie)
    assert (again.status_code, again.headers["Location"]) == (303, "/ui")
    assert "Set-Cookie" not in again.headers


@pytest.mark.parametrize("behind", [0.0, 60.0, 120.0, 180.0])
def test_used_link_opens_nowhere_again_where_the_clock_is_behind(
    page: AppClient, behind: float
) -> None:
    used, right = link(page), runtime()

    def clock() -> float:
        return page.clock() - behind

    late_store = Store(
        page.store.table.name, clock=clock, region="us-east-1", client=in_process("dynamodb")
    )
    late = dataclasses.replace(right, clock=clock, store=late_store)
    assert page.get(used).status_code == 303
    for _ in range(30):
        page.clock.advance(LINK_FOR / 6)
        for process in (late, right):
            install(process)
            assert page.get(used).status_code == 401


def opened(page: AppClient, path: str, cookie: str, site: str = "none") -> PageResponse:
    return page.client.http.get(path, headers={"Cookie": cookie, "Sec-Fetch-Site": site})


@pytest.mark.parametrize("site", ["none", "cross-site", "same-site", "same-origin", ""])
def test_UI_2_link_of_somebody_else_does_not_replace_a_session(site: str, page: AppClient) -> None:
    mine, other = page.cluster(), page.cluster()
    for cookie, shows, path, offers in (
        (cookie_of(page), "all clusters", link(page, other), f"cluster {other}"),
        (cookie_of(page, mine), f"cluster {mine}", link(page, other), f"cluster {other}"),
        (cookie_of(page, mine), f"cluster {mine}", link(page), "all clusters"),
    ):
        answer = opened(page, path, cookie, site)
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (409, False)
        assert f"session that shows {shows}." in answer.body.decode()
        assert f"begins one that shows {offers}." in answer.body.decode()
        assert seen(page, "/ui", cookie)[0] == 200
        if site != "same-origin":
            assert opened(page, f"{path}?replace=yes", cookie, site).status_code == 409
        assert opened(page, f"{path}?replace=no", cookie, site).status_code == 409


def test_UI_2_session_is_replaced_if_the_person_chooses_so(page: AppClient) -> None:
    mine, other = page.cluster(), page.cluster()
    cookie, path = cookie_of(page, mine), link(page, other)
    text = opened(page, path, cookie, "cross-site").body.decode()
    assert re.findall(r'<li><a href="([^"]*)"', text) == [f"/ui/clusters/{mine}", "?replace=yes"]
    answer = opened(page, f"{path}?replace=yes", cookie, "same-origin")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/ui/clusters/{other}")
    # works once
    assert opened(page, f"{path}?replace=yes", cookie, "same-origin").status_code == 401


def test_UI_2_link_to_the_same_clusters_renews_the_session(page: AppClient) -> None:
    name = page.cluster()
    for cluster in ("", name):
        cookie = cookie_of(page, cluster)
        page.clock.advance(SESSION_FOR - 10)
        renewed = opened(page, link(page, cluster), cookie)
        assert renewed.status_code == 303
        page.clock.advance(20)
        assert seen(page, "/ui", cookie)[0] == 401
        assert seen(page, "/ui", renewed.headers["Set-Cookie"].partition(";")[0])[0] == 200
        # there is no session to keep
        assert opened(page, link(page, name), cookie).status_code == 303


@pytest.mark.parametrize(
    ("path", "route", "base"),
    [
        ("/ui", "/ui", "/ui"),
        ("/api/ui", "/ui", "/api/ui"),
        ("/api/ui/", "/ui", "/api/ui"),
        ("/scaler/dev-1/ui/clusters/a/nodes", "/ui/clusters/{name}/{page}", "/scaler/dev-1/ui"),
        ("/api/ui/open/x.y", "/ui/open/{code}", "/api/ui"),
        ("/a$-_.+!*'()/ui", "/ui", "/a$-_.+!*'()/ui"),
        ("//evil.example/ui", "/ui", "/ui"),
        ("///evil.example/ui", "/ui", "/ui"),
        ("/\\evil.example/ui", "/ui", "/ui"),
        ("/api//evil.example/ui", "/ui", "/ui"),
        ("https://evil.example/ui", "/ui", "/ui"),
        ("evil.example/ui", "/ui", "/ui"),
        ("/./../ui", "/ui", "/ui"),
        ("/../ui", "/ui", "/ui"),
        ("/%2f/ui", "/ui", "/ui"),
        ("/a:b@c/ui", "/ui", "/ui"),
        ("/a\r\nSet-Cookie: x/ui", "/ui", "/ui"),
        ("/a\n/ui", "/ui", "/ui"),
        ('/"><script>/ui', "/ui", "/ui"),
        ("", "", "/ui"),
        ("/" * 5000, "/ui", "/ui"),
    ],
)
def test_base_of_the_page_has_the_shape_of_a_stage(path: str, route: str, base: str) -> None:
    assert base_of(path, route) == base


def test_UI_3_session_ends_and_is_bound_to_key_deployment_and_purpose() -> None:
    grant = new_grant(NOW, SESSION_FOR, None)
    text = written(grant, SESSION, "table", KEY.encode())
    keys = (KEY.encode(),)
    assert checked(text, SESSION, "table", keys, NOW + SESSION_FOR - 1) == grant
    assert checked(text, SESSION, "table", keys, NOW + SESSION_FOR) is None
    assert checked(text, SESSION, "other-table", keys, NOW) is None
    assert checked(text, LINK, "table", keys, NOW) is None
    assert checked(text, SESSION, "table", (OLD.encode(),), NOW) is None
    assert checked(text, SESSION, "table", (), NOW) is None
    endless = written(PageGrant("x", NOW + 10 * SESSION_FOR), SESSION, "table", KEY.encode())
    assert checked(endless, SESSION, "table", keys, NOW) is None


def test_UI_3_session_with_one_other_bit_is_none() -> None:
    text = written(new_grant(NOW, SESSION_FOR, ("a",)), SESSION, "table", KEY.encode())
    dice = random.Random(3)
    for _ in range(300):
        data = bytearray(text.encode())
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(7)
        if data.decode("latin-1") != text:
            assert checked(data.decode("latin-1"), SESSION, "table", (KEY.encode(),), NOW) is None


@pytest.mark.parametrize("text", ["", ".", "a", "\u00e9" * 50, "=" * 100, "." * 3000, "x" * 10**6])
def test_rubbish_is_no_session(text: str) -> None:
    assert checked(text, SESSION, "table", (KEY.encode(),), NOW) is None


def test_longest_session_has_3500_characters() -> None:
    grants = [PageGrant("x", NOW + 60.0, ("a" * count,)) for count in range(2_500, 2_650)]
    texts = {written(grant, SESSION, "table", KEY.encode()): grant for grant in grants}
    valid = {
        text
        for text in texts
        if checked(text, SESSION, "table", (KEY.encode(),), NOW) == texts[text]
    }
    assert {len(text) for text in valid} < {len(text) for text in texts}
    assert max(map(len, valid)) == LONGEST == 3_500
    assert all(len(text) > LONGEST for text in texts.keys() - valid)


def test_two_keys_are_valid_and_the_first_signs() -> None:
    before, after = keys_of(OLD), keys_of(f"{KEY}\n{OLD}\n{'z' * 40}\n")
    assert len(after) == 2
    text = written(new_grant(NOW, SESSION_FOR, None), SESSION, "t", before[0])
    assert checked(text, SESSION, "t", after, NOW) is not None
    assert checked(text, SESSION, "t", keys_of(KEY), NOW) is None
    assert keys_of("short") == keys_of("") == ()


def test_session_for_one_cluster_shows_no_other(page: AppClient) -> None:
    mine, other = page.cluster(), page.cluster()
    cookie = cookie_of(page, mine)
    assert seen(page, f"/ui/clusters/{mine}", cookie)[0] == 200
    status, text = seen(page, "/ui", cookie)
    assert (status, mine in text, other in text) == (200, True, False)
    hidden, unknown = (seen(page, f"/ui/clusters/{name}", cookie) for name in (other, "unknown"))
    assert hidden[0] == unknown[0] == 404
    assert other not in hidden[1]


def test_deployment_without_a_hosted_page_has_no_sessions(desk: AppClient) -> None:
    assert post(desk, "/ui/session").status_code == 404
    assert desk.get("/ui").status_code == desk.get("/ui/clusters/a").status_code == 404


@pytest.mark.parametrize("call", ["query", "get_item", "batch_get_item"])
def test_table_that_does_not_answer_is_a_page_with_status_503(call: str, page: AppClient) -> None:
    name, faults = page.cluster(), AwsFaults()
    cookie = cookie_of(page)
    broken = Store(
        page.store.table.name,
        clock=page.clock,
        sleep=lambda seconds: None,
        client=page.store.table.client,
        wrap=faults.wrap,
    )
    install(dataclasses.replace(runtime(), store=broken))
    faults.instead(call, busy("ValidationException"))
    answer = page.client.http.get(f"/ui/clusters/{name}", headers={"Cookie": cookie})
    assert (answer.status_code, answer.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert b"Traceback" not in answer.body


def test_key_that_cannot_be_read_ends_sessions_and_is_not_named(page: AppClient) -> None:
    cookie, code = cookie_of(page), link(page)

    def deleted(name: str) -> str:
        raise BadInput(f"secret {name}", "does not exist", "create it")

    install(dataclasses.replace(runtime(), read_secret=deleted))
    answers = {seen(page, path, cookie) for path in ("/ui", "/ui/clusters/a")}
    assert len(answers) == 1
    for status, text in (*answers, seen(page, code, cookie)):
        assert (status, "secret" in text, "page-key" in text) == (401, False, False)


def test_secrets_manager_that_does_not_answer_is_a_page_with_status_503(page: AppClient) -> None:
    cookie, code = cookie_of(page), link(page)

    def unavailable(name: str) -> str:
        raise SecretUnavailable(f"secret {name}: AWS did not answer")

    install(dataclasses.replace(runtime(), read_secret=unavailable))
    for path in ("/ui", code):
        status, text = seen(page, path, cookie)
        assert (status, "<h1>" in text, "page-key" in text) == (503, True, False), path


def test_session_is_read_from_at_most_8000_characters_of_cookies(page: AppClient) -> None:
    cookie = cookie_of(page)
    answers = {
        length: seen(page, "/ui", f"{cookie}; other=".ljust(length, "a"))[0]
        for length in (8000, 8001)
    }
    assert answers == {8000: 200, 8001: 401}


@pytest.mark.parametrize("other", ["a[b]=1", 'x="open', "just", '{"j":1}=2', "a=b,c", ""])
def test_malformed_cookie_of_another_page_does_not_end_the_session(
    other: str, page: AppClient
) -> None:
    cookie = cookie_of(page)
    assert seen(page, "/ui", f"{other}; {cookie}")[0] == 200
    assert seen(page, "/ui", f"{cookie}; {other}")[0] == 200


# -- the command


def test_ui_hosted_prints_the_link_of_the_deployment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def post(url: str) -> bytes:
        asked.append(url)
        return b'{"link": "/ui/open/abc", "validFor": 60}'

    monkeypatch.setattr(ui, "post", post)
    words = [
        "ui",
        "--hosted",
        "--no-open",
        "--api",
        "https://x.execute-api.eu-central-1.amazonaws.com/api/",
    ]
    assert main(words) == 0
    assert main([*words, "--cluster", "prod"]) == 0
    assert [url.rpartition("/api")[2] for url in asked] == ["/ui/session", "/clusters/prod/session"]
    assert "amazonaws.com/api/ui/open/abc" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("api", "says"),
    [
        ("", "is not given, and no login is kept to a stack"),
        ("http://x.example/api", "is not an HTTPS address"),
        ("https://[::1", "is not an HTTPS address"),
    ],
)
def test_ui_hosted_without_a_usable_address_says_so(
    api: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUTSCALER_PROFILE", "/nonexistent/profile.json")
    assert main(["ui", "--hosted", "--no-open", "--api", api]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "configured", "used"),
    [
        (
            "https://x.execute-api.eu-central-1.amazonaws.com/api/ui/session",
            "us-east-1",
            "eu-central-1",
        ),
        ("https://scaler.example.invalid/ui/session", "us-east-1", "us-east-1"),
    ],
)
def test_request_is_signed_for_the_region_of_the_api(
    url: str, configured: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[str] = []

    def send(self: URLLib3Session, request: AWSPreparedRequest) -> AWSResponse:
        signed.append(str(request.headers["Authorization"]))
        return AWSResponse(
            request.url, 200, HTTPHeaders(), HTTPResponse(io.BytesIO(b"{}"), preload_content=False)
        )

    monkeypatch.setattr(URLLib3Session, "send", send)
    for name, value in (("REGION", configured), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b")):
        monkeypatch.setenv(f"AWS_{name}", value)
    deployments.post(url)
    assert f"/{used}/execute-api/aws4_request" in signed[0]
