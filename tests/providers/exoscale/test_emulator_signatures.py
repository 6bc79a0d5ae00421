"""Tests of the emulated zone's signature check with the vendor's vectors and every
request that must be refused.
"""

from __future__ import annotations

import msgspec
import pytest

from infra.emulators.exoscale.authentication import (
    ExoscaleAuthenticator,
    ExoscaleKeyRing,
    signature,
)
from infra.emulators.vendor_common.fault_injection import VendorRefusedError
from infra.emulators.vendor_common.http_messages import Incoming
from tests.providers.exoscale.wire import KEY, START, ZoneClient, signed

POOL = "0f7c2a6e-6d3a-4f0e-9b55-6f1d2c3b4a59"
EXAMPLE = "exampleSecret-0123456789abcdefghijklmnopqrs"


@pytest.mark.parametrize(
    ("incoming", "secret", "expires", "expected"),
    [
        (
            Incoming("PUT", f"/v2/instance-pool/{POOL}:scale", {}, b'{"size": 5}'),
            EXAMPLE,
            "1768467000",
            "YIs8FjeBzPZfY5I2yLVk0ZLLVPEujxCFnpw347Iy0l8=",
        ),
        (
            Incoming("GET", f"/v2/instance-pool/{POOL}", {}),
            EXAMPLE,
            "1768467000",
            "BDpyxfm+bZnmisIDb3RxXOOyizm7xD2z6REXq+rTkfw=",
        ),
        (
            Incoming("GET", f"/v2/instance?manager-type=instance-pool&manager-id={POOL}", {}),
            EXAMPLE,
            "1768467000",
            "AfBQDQLMB4/ldFGJSbSWGC11K1joytOXHnk8nB62nL4=",
        ),
        (
            Incoming("GET", "/v2/zone", {}),
            "X" * 43,
            "3376684800",
            "Ntbq/p0HVmA3Zg1HHY+Lq1vjFGi7HeMrrgXDS5jRNlY=",
        ),
        (
            Incoming("GET", "/v2/zone?k1=v1&k2=v2", {}),
            "X" * 43,
            "3376684800",
            "iqOBz13+44L5j0uJclE8hmUhQQcvtCSoPEOXYK6liqY=",
        ),
    ],
)
def test_exoscale_published_signature_vectors(
    incoming: Incoming, secret: str, expires: str, expected: str
) -> None:
    assert signature(incoming, expires, secret) == expected


def _status(incoming: Incoming) -> int:
    return ZoneClient().front.served(incoming).status


def _request(*, left: float = 600.0, query: dict[str, str] | None = None, **more: str) -> Incoming:
    return signed("GET", "/v2/instance", b"", query or {}, expires=int(START + left), **more)


def test_exoscale_emulator_accepts_correctly_signed_requests() -> None:
    assert _status(_request()) == 200
    assert _status(_request(query={"manager-type": "instance-pool", "manager-id": POOL})) == 200


@pytest.mark.parametrize("left", [0.0, -1.0, 3601.0])
def test_exoscale_emulator_refuses_expired_or_overlong_signatures(left: float) -> None:
    assert _status(_request(left=left)) == 401


def test_exoscale_emulator_refuses_unknown_or_revoked_keys_and_wrong_secrets() -> None:
    assert _status(_request(key="EXO-EXAMPLE-NOBODY")) == 401
    assert _status(_request(secret="another-secret")) == 401
    desk = ZoneClient()
    desk.front.ring.keys[KEY].active = False
    assert desk.front.served(_request()).status == 401


def test_exoscale_emulator_refuses_a_tampered_request() -> None:
    good = signed(
        "PUT", f"/v2/instance-pool/{POOL}:scale", b'{"size": 5}', {}, expires=int(START + 600)
    )
    assert _status(good) == 404, "the signature is right, the pool is not there"
    assert _status(msgspec.structs.replace(good, body=b'{"size": 50}')) == 401
    assert (
        _status(msgspec.structs.replace(good, target=good.target.replace(POOL, POOL[::-1]))) == 401
    )
    assert (
        _status(msgspec.structs.replace(good, target=good.target.replace(":scale", ":evict")))
        == 401
    )


def test_exoscale_emulator_refuses_an_unsigned_query_parameter() -> None:
    whole = _request(query={"manager-type": "instance-pool"})
    assert (
        _status(msgspec.structs.replace(whole, target=f"{whole.target}&manager-id={POOL}")) == 401
    )
    assert _status(msgspec.structs.replace(_request(), target="/v2/instance?labels=x")) == 401
    assert _status(msgspec.structs.replace(whole, target="/v2/instance?manager-type=other")) == 401


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer x",
        "EXO2-HMAC-SHA256",
        "EXO2-HMAC-SHA256 credential=x",
        "EXO2-HMAC-SHA256 ,,==,",
        "EXO2-HMAC-SHA256 credential=EXO-EXAMPLE-KEY-0001,expires=soon,signature=x",
    ],
)
def test_exoscale_emulator_refuses_a_malformed_signature(header: str) -> None:
    assert (
        _status(Incoming("GET", "/v2/instance", {"authorization": header} if header else {})) == 401
    )


def test_exoscale_emulator_lists_zones_without_authentication() -> None:
    assert _status(Incoming("GET", "/v2/zone", {})) == 200


def test_exoscale_emulator_role_allows_exactly_its_operations() -> None:
    ring = ExoscaleKeyRing()
    ring.add(KEY, "example-secret-0001", frozenset({"list-instances"}))
    gate = ExoscaleAuthenticator(ring, lambda: START)
    assert gate.admit(_request(), "list-instances").id == KEY
    with pytest.raises(VendorRefusedError) as refused:
        gate.admit(_request(), "scale-instance-pool")
    assert refused.value.status == 403
