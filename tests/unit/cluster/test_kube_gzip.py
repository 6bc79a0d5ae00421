"""Lists may be compressed or not, depending on the server."""

from __future__ import annotations

import gzip
import json

import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.transport import LONGEST_BODY
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.cases import each_row
from tests.unit.cluster.support import client

PODS = {
    "kind": "PodList",
    "metadata": {},
    "items": [{"metadata": {"name": f"p-{n}", "uid": str(n)}} for n in range(9)],
}
PACKED = {"Content-Encoding": "gzip"}


def test_kube_lists_request_gzip_and_single_objects_do_not() -> None:
    packed = Reply(body=gzip.compress(json.dumps(PODS).encode()), headers=PACKED)
    with HttpScript([packed, Reply(body={})]) as server:
        cluster = client(server)
        [page] = cluster.list_pages("/api/v1/pods")
        cluster.get("/api/v1/namespaces/a")
    assert json.loads(page.body) == PODS
    assert [seen.headers["accept-encoding"] for seen in server.requests] == ["gzip", "identity"]


def test_kube_damaged_gzip_page_is_read_again() -> None:
    packed = gzip.compress(json.dumps(PODS).encode())
    with HttpScript(
        [Reply(body=packed[:-4], headers=PACKED), Reply(body=packed, headers=PACKED)]
    ) as server:
        [page] = client(server).list_pages("/api/v1/pods")
    assert json.loads(page.body) == PODS


def test_kube_gzip_bomb_is_refused_and_not_requested_again() -> None:
    bomb = gzip.compress(bytes(LONGEST_BODY + 1), 9)
    with (
        HttpScript([Reply(body=bomb, headers=PACKED)] * 4) as server,
        pytest.raises(errors.Unavailable, match="larger than") as caught,
    ):
        list(client(server).list_pages("/api/v1/pods"))
    assert caught.value.lasting
    assert len(server.requests) == 1


@each_row(("pods", "compressed"), [(10, False), (1000, True)])
def test_kube_simulated_server_compresses_long_lists_as_the_real_one(
    pods: int, *, compressed: bool
) -> None:
    store = ObjectStore(ManualClock(0.0))
    for number in range(pods):
        store.create(
            "pods",
            {
                "metadata": {
                    "name": f"p-{number}",
                    "namespace": "default",
                    "labels": {"a": "b" * 60},
                },
                "spec": {"containers": [{"name": "c", "image": "registry/image"}]},
            },
        )
    with ApiServer(store) as server:
        token = {"token": server.api.authority.user("admin").token}
        pages = list(client(server.url, user=token).list_pages("/api/v1/pods", limit=500))
        plain = b"".join(page.body for page in pages)
        sent = server.sent_bytes
    assert sum(len(json.loads(page.body)["items"]) for page in pages) == pods
    assert (sent < len(plain) / 4) == compressed
