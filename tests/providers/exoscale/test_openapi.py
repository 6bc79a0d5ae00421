"""The comparison with the vendor's document detects errors in requests and in answers."""

from __future__ import annotations

import importlib.resources
import json
import re
from typing import Any

import pytest

from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.providers.exoscale.fixture import ExoscaleFixture
from tests.providers.exoscale.wire import ZoneClient, checker

ID = "b2000000-0000-4000-8000-000000000001"
WORK = {"id": ID, "state": "pending"}
JSON = {"content-type": "application/json"}


def _problems(
    method: str, target: str, answer: object = None, *, body: object = None, status: int = 200
) -> list[str]:
    watching = checker()
    raw = b"" if body is None else json.dumps(body).encode()
    watching.watch(
        Incoming(method, f"/v2{target}", JSON if raw else {}, raw),
        Answer(status, json.dumps(answer).encode()),
    )
    return watching.problems


def test_exoscale_document_check_accepts_correct_traffic() -> None:
    assert not _problems("GET", "/instance?manager-type=instance-pool", {})
    assert not _problems(
        "GET", f"/instance-pool/{ID}", {"id": ID, "state": "scaling-up", "size": 0}
    )
    assert not _problems("PUT", f"/instance-pool/{ID}:scale", WORK, body={"size": 0})
    assert not _problems("GET", f"/instance/{ID}", "whatever an error looks like", status=404)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/instance-pool", {"instance-pools": {}}),  # not a list
        ("/instance-pool", {"pools": []}),  # misspelt
        (f"/instance-pool/{ID}", {"id": "x"}),  # not a uuid
        (f"/instance-pool/{ID}", {"id": ID, "state": "scaling"}),  # a Nodepool's state
        (f"/instance-pool/{ID}", {"id": ID, "min_available": 0}),  # not kebab-case
        (f"/instance-pool/{ID}", {"id": ID, "instances": [{"id": 5}]}),
        (f"/instance-pool/{ID}", {"id": ID, "manager": {"type": "nobody"}}),
        (f"/instance/{ID}", {"id": ID, "created-at": "yesterday"}),
        (f"/instance/{ID}", {"id": ID, "public-ip": "1.2.3.4.5"}),
        (
            "/sks-cluster",
            {
                "sks-clusters": [
                    {"id": ID, "nodepools": [{"id": ID, "taints": {"a": {"value": "b"}}}]}
                ]
            },
        ),
        (f"/instance-type/{ID}", {"id": ID, "memory": "4294967296"}),
        (f"/instance-type/{ID}", {"id": ID, "gpus": 0}),  # omitted where there are none
        (f"/operation/{ID}", {"id": ID, "state": "done"}),
        ("/quota/instance", {"resource": "instance", "usage": 1.5, "limit": 3}),
        ("/zone", [1, 2]),
    ],
)
def test_exoscale_document_check_detects_a_wrong_answer(path: str, answer: Any) -> None:
    assert _problems("GET", path, answer)


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/instance-pools", None),  # no such path
        ("POST", f"/instance-pool/{ID}:scale", {"size": 1}),  # no such method
        ("PUT", f"/instance-pool/{ID}:scale", {"size": -1}),
        ("PUT", f"/instance-pool/{ID}:scale", {"Size": 1}),
        ("PUT", f"/instance-pool/{ID}:scale", None),  # without a body
        ("PUT", f"/instance-pool/{ID}:evict", {"instances": ["x"]}),
        # unique, according to the document
        ("PUT", f"/sks-cluster/{ID}/nodepool/{ID}:evict", {"instances": [ID, ID]}),
        ("POST", f"/sks-cluster/{ID}/nodepool", {"name": "web"}),  # without required fields
        ("DELETE", f"/sks-cluster/{ID}/nodepool", None),  # without the Nodepool
        ("GET", "/instance-pool/x", None),
        ("GET", "/instance?manager=x", None),
        ("GET", "/instance?manager-type=nobody", None),
        ("GET", "/quota/instance", {"a": "body"}),
    ],
)
def test_exoscale_document_check_detects_a_wrong_request(
    method: str, target: str, body: object
) -> None:
    assert _problems(method, target, "refused", body=body, status=400)


def test_exoscale_bench_fails_for_traffic_outside_the_document() -> None:
    bench = ExoscaleFixture()
    with pytest.raises(AssertionError, match="bogus"), bench:
        bench.server.front.served(Incoming("GET", "/v2/instance?bogus=1", {}))


def test_exoscale_emulator_serves_only_documented_operations() -> None:
    desk = ZoneClient()
    pool, cluster = desk.zone.add_pool("own", size=2), desk.zone.add_cluster("prod")
    web = desk.zone.add_nodepool(cluster.id, "web", size=2)
    path = f"/sks-cluster/{cluster.id}/nodepool/{web.id}"
    work = desk.ask("PUT", f"{path}:scale", {"size": 3})["id"]
    desk.ask("PUT", f"/instance-pool/{pool.id}:scale", {"size": 3})
    desk.after(600.0)
    desk.ask("PUT", f"{path}:evict", {"instances": list(web.pool.members)[:1]})
    desk.ask("PUT", f"/instance-pool/{pool.id}:evict", {"instances": list(pool.members)[:1]})
    for each in (
        "/zone",
        "/instance",
        f"/instance/{next(iter(pool.members))}",
        "/instance-pool",
        f"/instance-pool/{pool.id}",
        "/sks-cluster",
        f"/sks-cluster/{cluster.id}",
        path,
        "/quota",
        "/quota/instance",
        "/instance-type",
        f"/instance-type/{pool.kind.id}",
        f"/operation/{work}",
    ):
        desk.ask("GET", each)
    body = {"name": "b", "size": 1, "disk-size": 20, "instance-type": {"id": pool.kind.id}}
    created = desk.ask("POST", f"/sks-cluster/{cluster.id}/nodepool", body)["reference"]["id"]
    desk.after(600.0)
    desk.ask("DELETE", f"/sks-cluster/{cluster.id}/nodepool/{created}")
    assert not desk.checker.problems
    assert len(desk.checker.checked) == 19


def test_exoscale_document_names_no_prices() -> None:
    """A version of the document that does is a reason to read them
    (docs/providers/exoscale.md "Limits")."""
    text = (importlib.resources.files("exoscale") / "openapi.json").read_text()
    assert "/instance-type" in text
    assert re.findall(r'"[^"]*pric[^"]*"(?=:)', text, re.IGNORECASE) == []
