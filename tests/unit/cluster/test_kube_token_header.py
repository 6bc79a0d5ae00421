"""A vendor's gateway requires the token in its own header."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cluster.connect import connect, from_kubeconfig
from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.cases import each_row
from tests.unit.cluster.support import TOKEN, ScriptedSecrets, client, kubeconfig

NAMED = {"name": "outscaler.dev/token-header", "extension": {"header": "X-Auth-Token"}}
OTHERS = {"name": "example.com/other", "extension": {"header": "Cookie"}}
UNAUTHORIZED = Reply(401, {"kind": "Status", "code": 401, "message": f"{TOKEN} is refused"})
NO_NODES = Reply(200, {"kind": "NodeList", "metadata": {}, "items": []})


def user(*extensions: Any) -> dict[str, Any]:
    return {"token": TOKEN, "extensions": list(extensions)}


def lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def test_kube_token_is_sent_only_in_the_header_named_by_the_extension() -> None:
    with HttpScript([NO_NODES]) as server:
        list(client(server, user=user(OTHERS, NAMED)).list_pages("/api/v1/nodes"))
    headers = lower(server.requests[0].headers)
    assert headers["x-auth-token"] == TOKEN
    assert "authorization" not in headers
    assert server.requests[0].credential == ""


@each_row("extensions", [(), (OTHERS,), ("x",), ({"name": 7},)])
def test_kube_token_without_the_extension_is_a_bearer_token(extensions: tuple[Any, ...]) -> None:
    with HttpScript([NO_NODES]) as server:
        list(client(server, user=user(*extensions)).list_pages("/api/v1/nodes"))
    assert "x-auth-token" not in lower(server.requests[0].headers)
    assert server.requests[0].credential


def test_kube_replaced_token_in_a_custom_header_is_read_again_when_refused() -> None:
    with HttpScript([UNAUTHORIZED, NO_NODES]) as server:
        text = json.dumps(kubeconfig(server.url, user=user(NAMED)))
        secrets = ScriptedSecrets(prod=text)
        cluster = connect(KubernetesAccess(kubeconfig_secret="prod"), secrets, clock=lambda: 0.0)
        secrets.now["prod"] = text.replace(TOKEN, "another-token")
        list(cluster.list_pages("/api/v1/nodes"))
    assert [lower(seen.headers)["x-auth-token"] for seen in server.requests] == [
        TOKEN,
        "another-token",
    ]


@each_row(
    "extension",
    [
        {"header": "Cookie"},
        {"header": "X-Auth-Token\r\nHost: a"},
        {},
        "X-Auth-Token",
        None,
        {"header": 7},
    ],
)
def test_kube_token_header_extension_refuses_other_headers(extension: object) -> None:
    text = json.dumps(kubeconfig(user=user({"name": NAMED["name"], "extension": extension})))
    with pytest.raises(BadInput) as raised:
        from_kubeconfig(text, place="kubeconfig secret prod")
    assert "users[0].user.extensions[0].extension.header" in raised.value.place
    assert TOKEN not in str(raised.value)
