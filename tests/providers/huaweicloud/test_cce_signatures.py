"""SDK-HMAC-SHA256 as the emulator checks it: signature vectors, and
accepted and refused callers.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json

import pytest

from infra.emulators.huaweicloud.authentication import SKEW, may
from infra.emulators.huaweicloud.signing import SCHEME, canonical, signature
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.providers.huaweicloud.wire import ProjectClient

KEY, SECRET = "AKIDEXAMPLE00000TEST", "SKEXAMPLEsecretkey0123456789abcdefghijkl"
PROJECT, CLUSTER = "0123456789abcdef0123456789abcdef", "2292498e-1111-11ee-8b5e-0255ac1001ba"
BASE = f"/api/v3/projects/{PROJECT}/clusters/{CLUSTER}"
SCALE = f"{BASE}/nodepools/7d48eca7-3419-11ea-bc29-0255ac1001a8/operation/scale"
BODY = (
    b'{"kind":"NodePool","apiVersion":"v3","spec":{"desiredNodeCount":3,"scaleGroups":["default"]}}'
)
HEADERS = {
    "host": "cce.cn-north-4.myhuaweicloud.com",
    "x-sdk-date": "20260102T030405Z",
    "content-type": "application/json",
    "x-project-id": PROJECT,
}


@pytest.mark.parametrize(
    ("incoming", "reported", "signed"),
    [
        (
            Incoming("GET", f"{BASE}/nodes?limit=200&marker=a%20b%2Fc~", HEADERS),
            "4ea5e39257493f5ef33621cebc1d976e537bcb0c4ccf21a75425260ef98374f5",
            "fba1973a1fa6a07dafe0a3d53ee97a498c549a7a9b28c81a909df88e1fc12921",
        ),
        (
            Incoming("POST", SCALE, HEADERS, BODY),
            "44d009987971edca47d80bf291392701faecb9a6d32749236bc782a40668f2ab",
            "991b906f2ed737255f97cabb19157bcb394f3eea5236eed65828ab08f2f56e83",
        ),
        (
            Incoming("POST", SCALE, {**HEADERS, "x-security-token": "TOKENabc"}, BODY),
            "3c99e0d18ea1d9bc928d0861178a40155e8e8b7f8fa758d312af0c7c42c29e74",
            "417dca547688070e863f83582286441b614329727a7af817d3c7670f5cbdd1a4",
        ),
    ],
    ids=["get", "post", "temporary keys"],
)
def test_CCE_17_three_signature_vectors(incoming: Incoming, reported: str, signed: str) -> None:
    names = sorted(incoming.headers)
    assert hashlib.sha256(canonical(incoming, names).encode()).hexdigest() == reported
    assert signature(incoming, names, SECRET) == signed


def _send(
    desk: ProjectClient,
    *,
    secret: str = SECRET,
    key: str = KEY,
    drop: str = "",
    late: float = 0.0,
    token: str = "",
    signs_token: bool = True,
    path: str = "/nodes",
    names: list[str] | None = None,
    body: bytes = b"",
    signed_body: bytes | None = None,
) -> Answer:
    stamp = _date(desk.clock() - late)
    headers = {"host": "cce.example.com", "x-sdk-date": stamp, "content-type": "application/json"}
    if token:
        headers["x-security-token"] = token
    if names is None:
        names = sorted({*headers} - {drop} - (set() if signs_token else {"x-security-token"}))
    target = f"{desk.base}{path}"
    made = signature(
        Incoming("GET", target, headers, body if signed_body is None else signed_body),
        names,
        secret,
    )
    headers["authorization"] = (
        f"{SCHEME} Access={key}, SignedHeaders={';'.join(names)}, Signature={made}"
    )
    return desk.front.served(Incoming("GET", target, headers, body))


def _date(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y%m%dT%H%M%SZ")


def test_cce_emulator_accepts_a_valid_signature_for_fifteen_minutes(desk: ProjectClient) -> None:
    desk.front.ring.add(KEY, SECRET)
    assert [_send(desk, late=late).status for late in (0.0, SKEW, -SKEW)] == [200] * 3
    for late in (SKEW + 1.0, -SKEW - 1.0):
        refused = _send(desk, late=late)
        assert (refused.status, json.loads(refused.body)["error_code"]) == (401, "APIGW.0303")


def test_cce_emulator_refuses_invalid_signatures(desk: ProjectClient) -> None:
    desk.front.ring.add(KEY, SECRET)
    tries = (
        _send(desk, secret="another"),
        _send(desk, key="AKIDEXAMPLENOBODY"),
        _send(desk, drop="host"),
        _send(desk, drop="x-sdk-date"),
        _send(desk, names=["x-sdk-date", "host"]),
        _send(desk, names=["Host"]),
        _send(desk, body=b"{}", signed_body=b""),
        _send(desk, names=["host", "x-absent", "x-sdk-date"]),
        _send(desk, token="none-is-needed"),
        _send(desk, names=["", "host", "x-sdk-date"]),
    )
    for refused in tries:
        assert (refused.status, json.loads(refused.body)["error_code"]) == (401, "APIGW.0301")
    desk.front.ring.keys[KEY].active = False
    assert _send(desk).status == 401
    assert not [call for call in desk.front.log if call.status == 200]


def test_cce_emulator_temporary_keys_need_a_signed_unexpired_token(desk: ProjectClient) -> None:
    ring = desk.front.ring
    session = ring.session(None, desk.clock() + 900.0)
    assert _send(desk, key=session.id, secret=session.secret, token=session.token).status == 200
    assert _send(desk, key=session.id, secret=session.secret).status == 401
    assert _send(desk, key=session.id, secret=session.secret, token="another").status == 401
    assert (
        _send(
            desk, key=session.id, secret=session.secret, token=session.token, signs_token=False
        ).status
        == 401
    )
    desk.after(900.0)
    refused = _send(desk, key=session.id, secret=session.secret, token=session.token)
    assert (refused.status, "expired" in refused.body.decode()) == (401, True)
    assert {session.secret, session.token} <= set(ring.secrets())


@pytest.mark.parametrize(
    "header", ["", "Basic abc", "SDK-HMAC-SHA256", "SDK-HMAC-SHA256 Access=a, Signature=b", "ü=;,"]
)
def test_cce_emulator_refuses_a_malformed_authorization_header(
    desk: ProjectClient, header: str
) -> None:
    answer = desk.front.served(
        Incoming("GET", f"{desk.base}/nodes", {"host": "x", "authorization": header})
    )
    assert answer.status == 401


def test_cce_emulator_agencies_give_temporary_keys_to_trusted_keys_only(
    desk: ProjectClient,
) -> None:
    ring = desk.front.ring
    ring.add_agency(
        "domain", "scaler", "AKIDEXAMPLE00000DESK", actions=frozenset({"cce:node:list"})
    )
    ring.add_agency("domain", "others", "AKIDEXAMPLENOBODY")

    def body(name: str, seconds: object = 3600) -> object:
        role = {"domain_name": "domain", "agency_name": name, "duration_seconds": seconds}
        return {"auth": {"identity": {"methods": ["assume_role"], "assume_role": role}}}

    path = "//v3.0/OS-CREDENTIAL/securitytokens"
    made = desk.ask("POST", path, body("scaler"), status=201)["credential"]
    assert made.keys() == {"access", "secret", "securitytoken", "expires_at"}
    key = ring.keys[made["access"]]
    assert (key.expires, may(key, "cce:node:list"), may(key, "cce:node:delete")) == (
        desk.clock() + 3600.0,
        True,
        False,
    )
    desk.ask("POST", path, body("others"), status=403)
    desk.ask("POST", path, body("nobody"), status=404)
    for wrong in (
        body("scaler", 899),
        body("scaler", 86401),
        body("scaler", "900"),
        {},
        {"auth": []},
        b"[]",
        b"\xff",
    ):
        desk.ask("POST", path, wrong, status=400)


def test_cce_emulator_projects_are_found_by_region(desk: ProjectClient) -> None:
    assert (
        desk.ask("GET", "//v3/projects", query={"name": "cn-north-4"})["projects"][0]["id"]
        == PROJECT
    )
    assert desk.ask("GET", "//v3/projects", query={"name": "cn-north-1"})["projects"] == []
    desk.cloud.projects["fedcba9876543210fedcba9876543210"] = "cn-north-4"
    assert len(desk.ask("GET", "//v3/projects")["projects"]) == 2
