"""EXO2-HMAC-SHA256 signatures, byte for byte."""

from __future__ import annotations

from chalicelib.model.secret import Secret
from chalicelib.providers.exoscale.credentials import (
    ExoscaleCredential,
    authorization,
    message,
    signed,
)
from chalicelib.providers.kit.http import VendorRequest
from tests.cases import each_row

API_KEY, API_SECRET = "EXO0123456789abcdefexample", "exampleSecret-0123456789abcdefghijklmnopqrs"
POOL = "0f7c2a6e-6d3a-4f0e-9b55-6f1d2c3b4a59"
CREDENTIAL = ExoscaleCredential(Secret(API_KEY), Secret(API_SECRET))
PUBLISHED = ExoscaleCredential(Secret("EXO" + 24 * "x"), Secret(43 * "X"))
EXPIRES = 1768467000
NOW = float(EXPIRES - 600)
ROOT = "https://api-ch-gva-2.exoscale.com/v2"
BODY = b'{"size": 5}'


@each_row(
    ("method", "path", "body", "params", "text", "signature"),
    [
        (
            "PUT",
            f"/v2/instance-pool/{POOL}:scale",
            BODY,
            {},
            f'PUT /v2/instance-pool/{POOL}:scale\n{{"size": 5}}\n\n\n1768467000',
            "YIs8FjeBzPZfY5I2yLVk0ZLLVPEujxCFnpw347Iy0l8=",
        ),
        (
            "GET",
            f"/v2/instance-pool/{POOL}",
            b"",
            {},
            f"GET /v2/instance-pool/{POOL}\n\n\n\n1768467000",
            "BDpyxfm+bZnmisIDb3RxXOOyizm7xD2z6REXq+rTkfw=",
        ),
        (
            "GET",
            "/v2/instance",
            b"",
            {"manager-type": "instance-pool", "manager-id": POOL},
            f"GET /v2/instance\n\n{POOL}instance-pool\n\n1768467000",
            "AfBQDQLMB4/ldFGJSbSWGC11K1joytOXHnk8nB62nL4=",
        ),
    ],
)
def test_exoscale_signing_known_vectors(
    method: str,
    path: str,
    body: bytes,
    params: dict[str, str],
    text: str,
    signature: str,
) -> None:
    assert message(method, path, body, params, EXPIRES) == text.encode()
    names = "signed-query-args=manager-id;manager-type," if params else ""
    assert authorization(CREDENTIAL, method, path, body, params, EXPIRES) == (
        f"EXO2-HMAC-SHA256 credential={API_KEY},{names}expires=1768467000,signature={signature}"
    )


@each_row(
    ("params", "names", "signature"),
    [
        ({}, "", "Ntbq/p0HVmA3Zg1HHY+Lq1vjFGi7HeMrrgXDS5jRNlY="),
        (
            {"k1": "v1", "k2": "v2"},
            "signed-query-args=k1;k2,",
            "iqOBz13+44L5j0uJclE8hmUhQQcvtCSoPEOXYK6liqY=",
        ),
        (
            {"k2": "v2", "k1": "v1"},
            "signed-query-args=k1;k2,",
            "iqOBz13+44L5j0uJclE8hmUhQQcvtCSoPEOXYK6liqY=",
        ),
    ],
)
def test_exoscale_signing_vendor_vectors(
    params: dict[str, str], names: str, signature: str
) -> None:
    assert authorization(PUBLISHED, "GET", "/v2/zone", b"", params, 3376684800) == (
        f"EXO2-HMAC-SHA256 credential=EXO{24 * 'x'},{names}expires=3376684800,signature={signature}"
    )


def test_exoscale_signing_covers_the_sent_request_for_ten_minutes() -> None:
    call = VendorRequest(
        "PUT",
        f"{ROOT}/instance-pool/{POOL}:scale",
        {"Content-Type": "application/json"},
        {},
        BODY,
        safe=True,
    )
    sent = signed(call, CREDENTIAL, NOW + 0.9)
    assert sent.headers["Authorization"].endswith(
        "expires=1768467000,signature=YIs8FjeBzPZfY5I2yLVk0ZLLVPEujxCFnpw347Iy0l8="
    )
    assert sent.headers["Content-Type"] == "application/json"
    assert (sent.method, sent.url, sent.body, sent.safe) == (call.method, call.url, call.body, True)


def test_exoscale_signing_excludes_the_host() -> None:
    there = signed(VendorRequest("GET", f"{ROOT}/zone"), CREDENTIAL, NOW)
    here = signed(VendorRequest("GET", "http://127.0.0.1:8080/v2/zone"), CREDENTIAL, NOW)
    assert there.headers == here.headers


def test_exoscale_signing_omits_parameters_without_a_value() -> None:
    """The vendor's Go client lists and signs such a parameter, its Python client does neither."""
    call = signed(
        VendorRequest(
            "GET", f"{ROOT}/instance", params={"manager-type": "instance-pool", "labels": ""}
        ),
        CREDENTIAL,
        NOW,
    )
    assert call.params == {"manager-type": "instance-pool"}
    assert "signed-query-args=manager-type," in call.headers["Authorization"]


@each_row(
    "other",
    [
        VendorRequest("GET", f"{ROOT}/instance-pool/{POOL}:scale", body=BODY),
        VendorRequest("PUT", f"{ROOT}/instance-pool/{POOL}:evict", body=BODY),
        VendorRequest("PUT", f"{ROOT}/instance-pool/{POOL}:scale", body=b'{"size":5}'),
        VendorRequest("PUT", f"{ROOT}/instance-pool/{POOL}:scale", params={"a": "b"}, body=BODY),
    ],
)
def test_exoscale_signing_any_change_changes_the_signature(other: VendorRequest) -> None:
    call = VendorRequest("PUT", f"{ROOT}/instance-pool/{POOL}:scale", body=BODY)
    right = signed(call, CREDENTIAL, NOW).headers["Authorization"]
    assert signed(other, CREDENTIAL, NOW).headers["Authorization"] != right
    assert signed(call, CREDENTIAL, NOW + 1).headers["Authorization"] != right


def test_exoscale_credential_repr_shows_no_secret() -> None:
    assert API_KEY not in repr(CREDENTIAL)
    assert API_SECRET not in repr(CREDENTIAL)
