"""The API requests and answers, and false answers that must not be believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.providers.errors import (
    InvalidRequest,
    NotFound,
    Transient,
    Unknown,
)
from chalicelib.providers.exoscale.decoding import NO_SIZE, ExoscaleInstance, ExoscaleTaint, Manager, Ref
from tests.cases import each_row
from tests.unit.providers.exoscale.scripted_api import (
    BEGUN,
    CALLS,
    CHANGES,
    CLUSTER,
    INSTANCE,
    INSTANCE_POOL,
    NODEPOOL,
    ONE,
    POOL,
    READS,
    SKS,
    TWO,
    TYPE,
    WORK,
    HttpScript,
    Reply,
    api_for,
    call,
    said,
)

LISTS = ["instances", "pools", "clusters"]


@each_row("name", CALLS)
def test_exoscale_api_each_call_is_one_signed_request_to_its_url(name: str) -> None:
    line, ask, reply = CALLS[name]
    with HttpScript([said(200, reply)]) as server:
        assert ask(api_for(server.url))
    [seen] = server.requests
    assert f"{seen.method} {seen.path}" == line
    assert seen.credential
    assert seen.query == ({"manager-type": "instance-pool"} if name == "instances" else {})
    assert seen.headers.get("content-type") == ("application/json" if name in CHANGES else None)


@each_row(
    ("name", "body"),
    [
        ("scale_pool", {"size": 5}),
        ("scale_nodepool", {"size": 5}),
        ("evict_pool", {"instances": [ONE, TWO]}),
        ("evict_nodepool", {"instances": [TWO]}),
    ],
)
def test_exoscale_api_change_has_an_absolute_size_or_names_evicted_instances(name: str, body: object) -> None:
    with HttpScript([said(200, BEGUN)]) as server:
        call(name, server.url)
    assert server.requests[0].json() == body


def test_exoscale_api_objects_are_decoded_completely() -> None:
    def answered(name: str) -> Any:
        with HttpScript([said(200, CALLS[name][2])]) as server:
            return call(name, server.url)

    assert answered("instances") == (
        ExoscaleInstance(
            ONE, "pool-0f7c2-abcde", "running", "2026-01-15T08:12:03Z", Ref(TYPE), 50, Manager(POOL, "instance-pool")
        ),
    )
    [pool] = answered("pools")
    assert (pool.size, pool.instances, pool.manager) == (2, (Ref(ONE), Ref(TWO)), Manager(NODEPOOL, "sks-nodepool"))
    [cluster] = answered("clusters")
    [nodepool] = cluster.nodepools
    assert (cluster.id, cluster.name, nodepool.id, nodepool.instance_pool) == (CLUSTER, "prod", NODEPOOL, Ref(POOL))
    assert (nodepool.labels, nodepool.taints) == ({"tier": "web"}, {"dedicated": ExoscaleTaint("web", "NoSchedule")})
    assert answered("types")[TYPE].memory == 4 * 2**30
    assert answered("work").reference.id == POOL


# -- omitted lists, and answers that are not lists


@each_row("name", LISTS)
def test_exoscale_api_omitted_list_is_empty(name: str) -> None:
    field = {"instances": "instances", "pools": "instance-pools", "clusters": "sks-clusters"}[name]
    bodies: tuple[dict[str, object], ...] = ({}, {field: []})
    for body in bodies:
        with HttpScript([said(200, body)]) as server:
            assert call(name, server.url) == ()


def test_exoscale_api_pool_and_cluster_without_members_have_none() -> None:
    bare = {key: value for key, value in INSTANCE_POOL.items() if key != "instances"} | {"size": 0, "labels": None}
    with HttpScript([said(200, {"instance-pools": [bare]})]) as server:
        assert api_for(server.url).pools()[0].instances == ()
    with HttpScript([said(200, {"sks-clusters": [{"id": CLUSTER, "nodepools": None}]})]) as server:
        assert api_for(server.url).clusters()[0].nodepools == ()


@each_row(
    ("field", "value"),
    [
        ("size", -3),
        ("size", "many"),
        ("size", 2**40),
        ("instances", [1]),
        ("manager", "x"),
        ("state", 7),
        ("instance-type", []),
    ],
)
def test_exoscale_api_malformed_pool_is_listed_without_a_size_and_blocks_no_other(field: str, value: object) -> None:
    odd_one = {**INSTANCE_POOL, "id": TWO, field: value}
    with HttpScript([said(200, {"instance-pools": [odd_one, INSTANCE_POOL]})]) as server:
        odd, good = api_for(server.url).pools()
    assert (odd.id, odd.size) == (TWO, NO_SIZE)
    assert (good.id, good.size, len(good.instances)) == (POOL, 2, 2)


def test_exoscale_api_malformed_nodepool_blocks_no_other() -> None:
    nodepools: list[dict[str, Any]] = SKS["nodepools"]  # type: ignore[assignment]
    body = {"sks-clusters": [{**SKS, "nodepools": [{**nodepools[0], "id": ONE, "size": 2**40}, *nodepools]}]}
    with HttpScript([said(200, body)]) as server:
        (cluster,) = api_for(server.url).clusters()
    assert [(each.id, each.size, each.instance_pool.id) for each in cluster.nodepools] == [
        (ONE, NO_SIZE, POOL),
        (NODEPOOL, 2, POOL),
    ]


@each_row("name", LISTS)
@each_row(
    "body",
    [
        {"message": "ok"},
        {"instances": {}, "instance-pools": {}, "sks-clusters": {}},
        [],
        "x",
        7,
        None,
        {"instances": [7], "instance-pools": [7], "sks-clusters": [7]},
        {"instances": [{}], "instance-pools": [{}], "sks-clusters": [{}]},
        {"instances": [{"id": "../x"}], "instance-pools": [{"id": "../x"}], "sks-clusters": [{"id": "../x"}]},
        {
            "instances": [{"id": ONE, "manager": "x"}],
            "instance-pools": [None, 7],
            "sks-clusters": [{"id": CLUSTER, "nodepools": {}}],
        },
        {"instances": [{"id": ONE, "state": 1}], "instance-pools": [[INSTANCE_POOL]], "sks-clusters": [SKS, SKS]},
        {
            "instances": [{"id": ONE, "manager": {"id": 7}}],
            "instance-pools": [{"id": None}],
            "sks-clusters": [{"id": CLUSTER, "nodepools": [7]}],
        },
        {"id": POOL, "instances": [], "instance-pools": [], "sks-clusters": []},
    ],
)
def test_exoscale_api_answer_that_is_not_a_list_is_not_an_empty_list(name: str, body: object) -> None:
    with HttpScript([Reply(200, json.dumps(body).encode())]) as server, pytest.raises(Unknown) as raised:
        call(name, server.url)
    assert CALLS[name][0].rpartition("/")[2] in raised.value.message


@each_row(("name", "ids"), [("instances", [ONE, ""]), ("pools", [POOL]), ("clusters", [CLUSTER])])
@each_row("odd", [7, {}, {"id": "../x"}, {"id": 7}, [INSTANCE_POOL]])
def test_exoscale_api_object_without_an_id_hides_no_other_of_its_list(name: str, ids: list[str], odd: object) -> None:
    body = {"instances": [INSTANCE, odd], "instance-pools": [INSTANCE_POOL, odd], "sks-clusters": [SKS, odd]}
    with HttpScript([said(200, body)]) as server:
        assert [each.id for each in call(name, server.url)] == ids  # type: ignore[attr-defined]


@each_row("name", READS)
@each_row(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"a": "\xff"}',
        b"[" * 100_000 + b"]" * 100_000,
        b"<html>hello</html>",
        b"upstream connect error",
    ],
)
def test_exoscale_api_invalid_json_is_never_an_answer(name: str, body: bytes) -> None:
    with HttpScript([Reply(200, body)] * 3) as server:
        if name == "types":
            assert call(name, server.url) == {}
        else:
            with pytest.raises((Transient, Unknown)):
                call(name, server.url)


def test_exoscale_api_irrelevant_fields_may_be_malformed_or_null() -> None:
    odd = {**INSTANCE, "disk-size": "large", "created-at": 7, "instance-type": "standard.medium", "template": None}
    with HttpScript([said(200, {"instances": [odd, {"id": TWO, "manager": None, "state": "brand-new"}]})]) as server:
        first, second = api_for(server.url).instances()
    assert (first.id, first.state, first.manager) == (ONE, "running", Manager(POOL, "instance-pool"))
    assert (second.state, second.manager) == ("brand-new", None)
    with HttpScript([said(200, {**INSTANCE_POOL, "labels": [], "template": 7, "min-available": None})]) as server:
        assert api_for(server.url).pool(POOL).size == 2


@each_row("name", ["instance", "pool", "work"])
def test_exoscale_api_answer_about_another_object_is_refused(name: str) -> None:
    right: dict[str, dict[str, Any]] = {"instance": INSTANCE, "pool": INSTANCE_POOL, "work": BEGUN}
    other = {**right[name], "id": CLUSTER}
    with HttpScript([said(200, other)]) as server, pytest.raises(Unknown, match="another thing"):
        call(name, server.url)


@each_row(
    "body",
    [
        {},
        {"message": "ok"},
        {"id": WORK},
        {"state": "pending"},
        [],
        {"id": WORK, "state": 1},
        {"id": "x", "state": "pending"},
        {**BEGUN, "reference": 7},
    ],
)
@each_row("name", CHANGES)
def test_exoscale_api_change_with_a_foreign_answer_may_have_been_made(name: str, body: object) -> None:
    with HttpScript([said(200, body)]) as server, pytest.raises(Transient, match="is not known"):
        call(name, server.url)


@each_row("name", LISTS)
def test_exoscale_api_missing_list_is_a_wrong_address_and_not_a_deleted_pool(name: str) -> None:
    with HttpScript([said(404, "404 page not found")]) as server, pytest.raises(InvalidRequest) as raised:
        call(name, server.url)
    assert "providers.exoscale.endpoint" in raised.value.message


@each_row("name", ["instance", "pool"])
def test_exoscale_api_deleted_object_is_not_found(name: str) -> None:
    with HttpScript([said(404, {"message": "Not Found"})]) as server, pytest.raises(NotFound):
        call(name, server.url)


# -- values that never become part of a URL


@each_row(
    "rubbish",
    [
        "",
        "x",
        "..",
        f"{POOL}/..",
        f"{POOL}\n",
        f"{POOL}:scale",
        f" {POOL}",
        f"{POOL}x",
        "0f7c2a6e6d3a4f0e9b556f1d2c3b4a59",
        "placeholder-0f7c2a6e-1",
        "../../zone?x=y",
    ],
)
def test_exoscale_api_only_ids_become_part_of_a_url(rubbish: str) -> None:
    with HttpScript([]) as server:
        api = api_for(server.url)
        asks: list[Callable[[], object]] = [
            lambda: api.instance(rubbish),
            lambda: api.pool(rubbish),
            lambda: api.work(rubbish),
            lambda: api.scale_pool(rubbish, 1),
            lambda: api.evict_pool(rubbish, [ONE]),
            lambda: api.evict_pool(POOL, [ONE, rubbish]),
            lambda: api.scale_nodepool(CLUSTER, rubbish, 1),
            lambda: api.scale_nodepool(rubbish, NODEPOOL, 1),
            lambda: api.evict_nodepool(CLUSTER, NODEPOOL, [rubbish]),
        ]
        for ask in asks:
            with pytest.raises(InvalidRequest):
                ask()
        assert api.instance_types([rubbish]) == {rubbish: None}
    assert server.requests == []


def test_exoscale_api_refuses_negative_sizes_and_empty_evictions_and_dedups_names() -> None:
    with HttpScript([said(200, BEGUN)]) as server:
        api = api_for(server.url)
        with pytest.raises(InvalidRequest):
            api.scale_pool(POOL, -1)
        with pytest.raises(InvalidRequest):
            api.evict_pool(POOL, [])
        api.evict_nodepool(CLUSTER, NODEPOOL, [ONE, ONE.upper(), TWO])
    assert [seen.json() for seen in server.requests] == [{"instances": [ONE, TWO]}]
