"""The signature, byte for byte, and the inputs it does not depend on."""

from __future__ import annotations

import hashlib
import string
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.secret import Secret
from chalicelib.providers.huaweicloud.api import scale_call
from chalicelib.providers.huaweicloud.credentials import (
    CceCredential,
    canonical_path,
    canonical_query,
    canonical_request,
    signed,
    timestamp,
)
from chalicelib.providers.kit.http import VendorRequest
from infra.emulators.huaweicloud.account import PROJECT
from tests.cases import each_row
from tests.providers.huaweicloud.test_credentials import ACCESS_KEY, SECRET_KEY
from tests.providers.huaweicloud.test_decoding import POOL

NOW = 1767323045.0  # 2026-01-02T03:04:05Z
CLUSTER = "2292498e-1111-11ee-8b5e-0255ac1001ba"
ROOT = f"https://cce.cn-north-4.myhuaweicloud.com/api/v3/projects/{PROJECT}/clusters/{CLUSTER}"
HEADERS = {"Content-Type": "application/json", "X-Project-Id": PROJECT}
LONG = CceCredential(Secret(ACCESS_KEY), Secret(SECRET_KEY))
SHORT = msgspec.structs.replace(LONG, token=Secret("TOKENabc"))
NAMES = "content-type;host;x-project-id;x-sdk-date"
READ = VendorRequest("GET", f"{ROOT}/nodes", HEADERS, {"marker": "a b/c~", "limit": "200"})
SCALE = scale_call(ROOT, HEADERS, POOL, 3, "default", zero=False)

VECTORS = [
    (
        READ,
        LONG,
        NAMES,
        "4ea5e39257493f5ef33621cebc1d976e537bcb0c4ccf21a75425260ef98374f5",
        "fba1973a1fa6a07dafe0a3d53ee97a498c549a7a9b28c81a909df88e1fc12921",
    ),
    (
        SCALE,
        LONG,
        NAMES,
        "44d009987971edca47d80bf291392701faecb9a6d32749236bc782a40668f2ab",
        "991b906f2ed737255f97cabb19157bcb394f3eea5236eed65828ab08f2f56e83",
    ),
    (
        SCALE,
        SHORT,
        f"{NAMES};x-security-token",
        "3c99e0d18ea1d9bc928d0861178a40155e8e8b7f8fa758d312af0c7c42c29e74",
        "417dca547688070e863f83582286441b614329727a7af817d3c7670f5cbdd1a4",
    ),
]


@each_row(("call", "credential", "names", "digest", "wanted"), VECTORS)
def test_CCE_17_known_signature_vectors(
    call: VendorRequest, credential: CceCredential, names: str, digest: str, wanted: str
) -> None:
    sent = signed(call, credential, NOW)
    assert sent.headers["authorization"] == (
        f"SDK-HMAC-SHA256 Access={ACCESS_KEY}, SignedHeaders={names}, Signature={wanted}"
    )
    headers = {name: sent.headers[name] for name in names.split(";")}
    parts = urlsplit(sent.url)
    request = canonical_request(sent.method, parts.path, parts.query, headers, sent.body or b"")
    assert hashlib.sha256(request.encode()).hexdigest() == digest


def test_CCE_17_signed_body_equals_the_documented_one() -> None:
    assert SCALE.body == (
        b'{"kind":"NodePool","apiVersion":"v3","spec":{"desiredNodeCount":3,"scaleGroups":'
        b'["default"]}}'
    )
    assert hashlib.sha256(SCALE.body).hexdigest().startswith("436248ad")


def test_huawei_signing_sends_exactly_what_was_signed() -> None:
    sent = signed(READ, SHORT, NOW)
    assert sent.url == f"{ROOT}/nodes?limit=200&marker=a%20b%2Fc~"
    assert sent.params == {}
    assert sent.headers["host"] == "cce.cn-north-4.myhuaweicloud.com"
    assert sent.headers["x-security-token"] == "TOKENabc"
    assert sent.headers["x-sdk-date"] == timestamp(NOW) == "20260102T030405Z"
    assert (sent.body, sent.safe) == (READ.body, READ.safe)


def test_huawei_signing_appends_a_slash_only_to_the_signed_path() -> None:
    assert (
        canonical_path("/api/v3/addons") == canonical_path("/api/v3/addons/") == "/api/v3/addons/"
    )
    assert canonical_path("/") == "/"
    assert canonical_path("/a b/ü~") == canonical_path("/a%20b/%C3%BC~") == "/a%20b/%C3%BC~/"
    assert not urlsplit(signed(READ, LONG, NOW).url).path.endswith("/")


def test_huawei_signing_empty_query_is_an_empty_line_without_a_question_mark() -> None:
    call = VendorRequest("GET", ROOT, HEADERS)
    assert signed(call, LONG, NOW).url == ROOT
    assert canonical_request("get", "/", "", {"host": "h"}, b"").splitlines()[:4] == [
        "GET",
        "/",
        "",
        "host:h",
    ]


@each_row(
    ("url", "host"),
    [
        ("https://cce.example.com:443/x", "cce.example.com"),
        ("https://cce.example.com:8443/x", "cce.example.com:8443"),
        ("http://127.0.0.1:80/x", "127.0.0.1"),
        ("http://[::1]:8080/x", "[::1]:8080"),
    ],
)
def test_huawei_signing_uses_the_host_as_the_transport_sends_it(url: str, host: str) -> None:
    assert signed(VendorRequest("GET", url), LONG, NOW).headers["host"] == host


def test_huawei_signing_empty_body_has_the_hash_of_nothing() -> None:
    request = canonical_request("GET", "/x", "", {"host": "h"}, b"")
    assert request.endswith("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


words = st.text(min_size=0, max_size=12)
queries = st.dictionaries(words.filter(bool), words, max_size=5)


@settings(max_examples=60, deadline=None)
@given(queries)
def test_huawei_signing_query_is_sorted_and_decodes_to_its_input(params: dict[str, str]) -> None:
    try:
        "".join([*params, *params.values()]).encode()
    except UnicodeEncodeError:
        return
    text = canonical_query(params)
    halves = [pair.split("=") for pair in text.split("&")] if text else []
    pairs = [(unquote(name), unquote(value)) for name, value in halves]
    assert dict(pairs) == params
    assert pairs == sorted(pairs)
    assert set(text) <= set(f"{string.ascii_letters}{string.digits}-_.~%&=")
    assert dict(parse_qsl(text, keep_blank_values=True)) == params


@settings(max_examples=60, deadline=None)
@given(
    st.permutations(["limit", "marker", "availability_zone"]),
    st.permutations(["Content-Type", "X-Project-Id"]),
)
def test_huawei_signing_does_not_depend_on_the_order_of_its_input(
    names: list[str], headers: list[str]
) -> None:
    ordered = VendorRequest(
        "GET", ROOT, {name: HEADERS[name] for name in headers}, {name: name for name in names}
    )
    assert signed(ordered, LONG, NOW) == signed(
        VendorRequest("GET", ROOT, HEADERS, {name: name for name in sorted(names)}), LONG, NOW
    )


def test_huawei_signing_covers_each_part() -> None:
    def of(call: VendorRequest = READ, credential: CceCredential = LONG, now: float = NOW) -> str:
        return signed(call, credential, now).headers["authorization"].rpartition("=")[2]

    changed = [
        of(VendorRequest("PUT", READ.url, READ.headers, READ.params)),
        of(VendorRequest("GET", f"{ROOT}/node", HEADERS, READ.params)),
        of(VendorRequest("GET", READ.url, HEADERS, {"limit": "201"})),
        of(VendorRequest("GET", READ.url, HEADERS, READ.params, b"x")),
        of(VendorRequest("GET", READ.url, HEADERS | {"X-Project-Id": "f" * 32}, READ.params)),
        of(credential=SHORT),
        of(credential=CceCredential(Secret(ACCESS_KEY), Secret("another"))),
        of(now=NOW + 1),
    ]
    assert len({of(), *changed}) == len(changed) + 1


def test_huawei_signing_credential_repr_shows_nothing() -> None:
    shown = f"{SHORT!r} {SHORT}"
    assert not any(secret.reveal() in shown for secret in SHORT.secrets)
