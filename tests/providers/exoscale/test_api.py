"""The client of Exoscale's API: requests, attempts, cached reads, and false answers
that must not be believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from chalicelib.model.secret import SecretUnavailable
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.decoding import (
    NO_SIZE,
    ExoscaleInstance,
    ExoscaleTaint,
    Manager,
    NewNodepool,
    Quota,
    Ref,
)
from chalicelib.providers.exoscale.error_mapping import is_forbidden
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    ProviderError,
    Throttled,
    Transient,
    Unauthorized,
    Unknown,
)
from infra.emulators.exoscale.account import example_id
from infra.emulators.vendor_common.http_messages import NO_ANSWER, Answer, scripted
from tests.cases import each_row
from tests.providers.emulated import KeptCache, RecordedLimits, RotatedSecrets
from tests.providers.exoscale.fixture import (
    BEGUN,
    INSTANCE,
    INSTANCE_POOL,
    KIND,
    ONE,
    SKS,
    TWO,
    WORK,
    ExoscaleFixture,
    opened,
    sent,
)
from tests.providers.exoscale.fixture import MEDIUM as TYPE
from tests.providers.exoscale.fixture import NP_A as NODEPOOL
from tests.providers.exoscale.fixture import OURS as CLUSTER
from tests.providers.exoscale.fixture import A as POOL

NEW = NewNodepool("web-b", 2, 50, Ref(TYPE))
# Each call: its request line, the call itself, and an answer.
CALLS: dict[str, tuple[str, Callable[[ExoscaleApi], object], object]] = {
    "instances": ("GET /v2/instance", lambda api: api.instances(), {"instances": [INSTANCE]}),
    "instance": (f"GET /v2/instance/{ONE}", lambda api: api.instance(ONE), INSTANCE),
    "pools": (
        "GET /v2/instance-pool",
        lambda api: api.pools(),
        {"instance-pools": [INSTANCE_POOL]},
    ),
    "pool": (f"GET /v2/instance-pool/{POOL}", lambda api: api.pool(POOL), INSTANCE_POOL),
    "clusters": ("GET /v2/sks-cluster", lambda api: api.clusters(), {"sks-clusters": [SKS]}),
    "quota": (
        "GET /v2/quota/instance",
        lambda api: api.quota(),
        {"resource": "instance", "usage": 4, "limit": 20},
    ),
    "types": (f"GET /v2/instance-type/{TYPE}", lambda api: api.instance_types([TYPE]), KIND),
    "work": (f"GET /v2/operation/{WORK}", lambda api: api.work(WORK), BEGUN),
    "scale_pool": (
        f"PUT /v2/instance-pool/{POOL}:scale",
        lambda api: api.scale_pool(POOL, 5),
        BEGUN,
    ),
    "evict_pool": (
        f"PUT /v2/instance-pool/{POOL}:evict",
        lambda api: api.evict_pool(POOL, [ONE, TWO]),
        BEGUN,
    ),
    "scale_nodepool": (
        f"PUT /v2/sks-cluster/{CLUSTER}/nodepool/{NODEPOOL}:scale",
        lambda api: api.scale_nodepool(CLUSTER, NODEPOOL, 5),
        BEGUN,
    ),
    "evict_nodepool": (
        f"PUT /v2/sks-cluster/{CLUSTER}/nodepool/{NODEPOOL}:evict",
        lambda api: api.evict_nodepool(CLUSTER, NODEPOOL, [TWO]),
        BEGUN,
    ),
    "create_nodepool": (
        f"POST /v2/sks-cluster/{CLUSTER}/nodepool",
        lambda api: api.create_nodepool(CLUSTER, NEW),
        BEGUN,
    ),
    "delete_nodepool": (
        f"DELETE /v2/sks-cluster/{CLUSTER}/nodepool/{NODEPOOL}",
        lambda api: api.delete_nodepool(CLUSTER, NODEPOOL),
        BEGUN,
    ),
    "reboot": (f"PUT /v2/instance/{ONE}:reboot", lambda api: api.reboot(ONE), BEGUN),
}
READS = [name for name, (line, _, _) in CALLS.items() if line.startswith("GET")]
CHANGES = [name for name in CALLS if name not in READS]


LISTS = ["instances", "pools", "clusters"]


def script(*answers: Answer, on: str = ".") -> ExoscaleFixture:
    """Returns an empty zone that gives these answers first."""
    zone = opened()
    zone.server.reply(on, *answers)
    return zone


def call(name: str, *answers: Answer) -> Any:
    """Makes one call of the table; returns its result."""
    return CALLS[name][1](script(*answers).api())


@each_row("name", CALLS)
def test_exoscale_api_each_call_is_one_signed_request_to_its_url(name: str) -> None:
    line, ask, reply = CALLS[name]
    zone = script(scripted(200, reply))
    assert ask(zone.api())
    [request] = zone.server.requests
    assert f"{request.method} {request.path}" == line
    assert request.headers["authorization"].startswith("EXO2-HMAC-SHA256 ")
    assert dict(request.query()) == (
        {"manager-type": "instance-pool"} if name == "instances" else {}
    )
    assert request.headers.get("content-type") == ("application/json" if request.body else None)
    assert bool(request.body) == (name in CHANGES and name not in ("reboot", "delete_nodepool"))


@each_row(
    ("name", "body"),
    [
        ("scale_pool", {"size": 5}),
        ("scale_nodepool", {"size": 5}),
        ("evict_pool", {"instances": [ONE, TWO]}),
        ("evict_nodepool", {"instances": [TWO]}),
    ],
)
def test_exoscale_api_change_has_an_absolute_size_or_names_evicted_instances(
    name: str, body: object
) -> None:
    zone = script(scripted(200, BEGUN))
    CALLS[name][1](zone.api())
    assert sent(zone.server.requests[0]) == body


def test_exoscale_api_new_nodepool_is_sent_without_its_empty_fields() -> None:
    complete = msgspec.structs.replace(
        NEW,
        description="for the shop",
        instance_prefix="web",
        public_ip_assignment="dual",
        kubelet_max_pods=64,
        labels={"tier": "web"},
        taints={"dedicated": ExoscaleTaint("web", "NoSchedule")},
        security_groups=(Ref(ONE), Ref(TWO)),
        private_networks=(Ref(ONE),),
        anti_affinity_groups=(Ref(TWO),),
    )
    zone = script(scripted(200, BEGUN), scripted(200, BEGUN))
    for nodepool in (NEW, complete):
        zone.api().create_nodepool(CLUSTER, nodepool)
    least = {"name": "web-b", "size": 2, "disk-size": 50, "instance-type": {"id": TYPE}}
    assert [sent(request) for request in zone.server.requests] == [
        least,
        {
            **least,
            "description": "for the shop",
            "instance-prefix": "web",
            "public-ip-assignment": "dual",
            "kubelet-max-pods": 64,
            "labels": {"tier": "web"},
            "taints": {"dedicated": {"value": "web", "effect": "NoSchedule"}},
            "security-groups": [{"id": ONE}, {"id": TWO}],
            "private-networks": [{"id": ONE}],
            "anti-affinity-groups": [{"id": TWO}],
        },
    ]


def test_exoscale_api_objects_are_decoded_completely() -> None:
    def answered(name: str) -> Any:
        return call(name, scripted(200, CALLS[name][2]))

    assert answered("instances") == (
        ExoscaleInstance(
            ONE,
            "pool-0001-00001",
            "running",
            "2026-01-15T08:30:00Z",
            Ref(TYPE),
            50,
            Manager(POOL, "instance-pool"),
            Ref(example_id("template", 1)),
        ),
    )
    [pool] = answered("pools")
    assert (pool.size, pool.instances, pool.manager) == (
        2,
        (Ref(ONE), Ref(TWO)),
        Manager(NODEPOOL, "sks-nodepool"),
    )
    [cluster] = answered("clusters")
    [nodepool] = cluster.nodepools
    assert (cluster.id, cluster.name, nodepool.id, nodepool.instance_pool) == (
        CLUSTER,
        "prod",
        NODEPOOL,
        Ref(POOL),
    )
    assert (nodepool.labels, nodepool.taints) == (
        {"tier": "web"},
        {"dedicated": ExoscaleTaint("web", "NoSchedule")},
    )
    assert answered("types")[TYPE].memory == 4 * 2**30
    assert answered("work").reference.id == POOL


# -- omitted lists, and answers that are not lists


@each_row("name", LISTS)
def test_exoscale_api_omitted_list_is_empty(name: str) -> None:
    field = {"instances": "instances", "pools": "instance-pools", "clusters": "sks-clusters"}[name]
    bodies: tuple[dict[str, object], ...] = ({}, {field: []})
    for body in bodies:
        assert call(name, scripted(200, body)) == ()


def test_exoscale_api_pool_and_cluster_without_members_have_none() -> None:
    bare = {key: value for key, value in INSTANCE_POOL.items() if key != "instances"} | {
        "size": 0,
        "labels": None,
    }
    assert call("pools", scripted(200, {"instance-pools": [bare]}))[0].instances == ()
    assert (
        call("clusters", scripted(200, {"sks-clusters": [{"id": CLUSTER, "nodepools": None}]}))[
            0
        ].nodepools
        == ()
    )


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
def test_exoscale_api_malformed_pool_is_listed_without_a_size_and_blocks_no_other(
    field: str, value: object
) -> None:
    odd_one = {**INSTANCE_POOL, "id": TWO, field: value}
    odd, good = call("pools", scripted(200, {"instance-pools": [odd_one, INSTANCE_POOL]}))
    assert (odd.id, odd.size) == (TWO, NO_SIZE)
    assert (good.id, good.size, len(good.instances)) == (POOL, 2, 2)


def test_exoscale_api_malformed_nodepool_blocks_no_other() -> None:
    nodepools: list[dict[str, Any]] = SKS["nodepools"]
    body = {
        "sks-clusters": [
            {**SKS, "nodepools": [{**nodepools[0], "id": ONE, "size": 2**40}, *nodepools]}
        ]
    }
    (cluster,) = call("clusters", scripted(200, body))
    assert [(each.id, each.size, each.instance_pool.id) for each in cluster.nodepools] == [
        (ONE, NO_SIZE, POOL),
        (NODEPOOL, 2, POOL),
    ]


@each_row(
    ("field", "value"),
    [
        ("description", "x" * 301),
        ("instance-prefix", 7),
        ("public-ip-assignment", []),
        ("security-groups", [7]),
        ("private-networks", {}),
        ("anti-affinity-groups", [{"id": TWO}] * 101),
        ("is-partial", "x"),
    ],
)
def test_exoscale_api_nodepool_that_cannot_be_copied_keeps_labels_and_taints(
    field: str, value: object
) -> None:
    [complete] = call("clusters", scripted(200, {"sks-clusters": [SKS]}))[0].nodepools
    body = {"sks-clusters": [{**SKS, "nodepools": [{**SKS["nodepools"][0], field: value}]}]}
    [nodepool] = call("clusters", scripted(200, body))[0].nodepools
    assert (complete.is_partial, nodepool.is_partial) == (False, True)
    assert (nodepool.size, nodepool.labels, nodepool.taints) == (
        2,
        complete.labels,
        complete.taints,
    )
    assert (nodepool.description, nodepool.security_groups) == ("", ())


@each_row(("field", "value"), [("labels", 7), ("size", "many")])
def test_exoscale_api_nodepool_without_labels_or_size_is_partial(field: str, value: object) -> None:
    body = {"sks-clusters": [{**SKS, "nodepools": [{**SKS["nodepools"][0], field: value}]}]}
    [nodepool] = call("clusters", scripted(200, body))[0].nodepools
    assert nodepool.is_partial


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
        {
            "instances": [{"id": "../x"}],
            "instance-pools": [{"id": "../x"}],
            "sks-clusters": [{"id": "../x"}],
        },
        {
            "instances": [{"id": ONE, "manager": "x"}],
            "instance-pools": [None, 7],
            "sks-clusters": [{"id": CLUSTER, "nodepools": {}}],
        },
        {
            "instances": [{"id": ONE, "state": 1}],
            "instance-pools": [[INSTANCE_POOL]],
            "sks-clusters": [SKS, SKS],
        },
        {
            "instances": [{"id": ONE, "manager": {"id": 7}}],
            "instance-pools": [{"id": None}],
            "sks-clusters": [{"id": CLUSTER, "nodepools": [7]}],
        },
        {"id": POOL, "instances": [], "instance-pools": [], "sks-clusters": []},
    ],
)
def test_exoscale_api_answer_that_is_not_a_list_is_not_an_empty_list(
    name: str, body: object
) -> None:
    with pytest.raises(Unknown) as raised:
        call(name, scripted(200, json.dumps(body)))
    assert CALLS[name][0].rpartition("/")[2] in raised.value.message


@each_row(("name", "ids"), [("instances", [ONE, ""]), ("pools", [POOL]), ("clusters", [CLUSTER])])
@each_row("odd", [7, {}, {"id": "../x"}, {"id": 7}, [INSTANCE_POOL]])
def test_exoscale_api_object_without_an_id_hides_no_other_of_its_list(
    name: str, ids: list[str], odd: object
) -> None:
    body = {
        "instances": [INSTANCE, odd],
        "instance-pools": [INSTANCE_POOL, odd],
        "sks-clusters": [SKS, odd],
    }
    assert [each.id for each in call(name, scripted(200, body))] == ids


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
    answers = [scripted(200, body)] * 3
    if name == "types":
        assert call(name, *answers) == {}
    else:
        with pytest.raises((Transient, Unknown)):
            call(name, *answers)


def test_exoscale_api_irrelevant_fields_may_be_malformed_or_null() -> None:
    odd = {
        **INSTANCE,
        "disk-size": "large",
        "created-at": 7,
        "instance-type": "standard.medium",
        "template": None,
    }
    bare = {"id": TWO, "manager": None, "state": "brand-new"}
    first, second = call("instances", scripted(200, {"instances": [odd, bare]}))
    assert (first.id, first.state, first.manager) == (
        ONE,
        "running",
        Manager(POOL, "instance-pool"),
    )
    assert (second.state, second.manager) == ("brand-new", None)
    assert (
        call(
            "pool",
            scripted(200, {**INSTANCE_POOL, "labels": [], "template": 7, "min-available": None}),
        ).size
        == 2
    )


@each_row("name", ["instance", "pool", "work"])
def test_exoscale_api_answer_about_another_object_is_refused(name: str) -> None:
    right: dict[str, dict[str, Any]] = {"instance": INSTANCE, "pool": INSTANCE_POOL, "work": BEGUN}
    other = {**right[name], "id": CLUSTER}
    with pytest.raises(Unknown, match="another thing"):
        call(name, scripted(200, other))


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
def test_exoscale_api_change_with_a_foreign_answer_may_have_been_made(
    name: str, body: object
) -> None:
    with pytest.raises(Transient, match="is not known"):
        call(name, scripted(200, body))


@each_row("name", LISTS)
def test_exoscale_api_missing_list_is_a_wrong_address_and_not_a_deleted_pool(name: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        call(name, scripted(404, "404 page not found"))
    assert "providers.exoscale.endpoint" in raised.value.message


@each_row("name", ["instance", "pool"])
def test_exoscale_api_deleted_object_is_not_found(name: str) -> None:
    with pytest.raises(NotFound):
        call(name, scripted(404, {"message": "Not Found"}))


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
        POOL.replace("-", ""),
        "placeholder-0f7c2a6e-1",
        "../../zone?x=y",
    ],
)
def test_exoscale_api_only_ids_become_part_of_a_url(rubbish: str) -> None:
    zone = script()
    api = zone.api()
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
        lambda: api.create_nodepool(rubbish, NEW),
        lambda: api.delete_nodepool(CLUSTER, rubbish),
        lambda: api.delete_nodepool(rubbish, NODEPOOL),
        *(
            partial(api.create_nodepool, CLUSTER, msgspec.structs.replace(NEW, **{field: value}))
            for field, value in (
                ("instance_type", Ref(rubbish)),
                ("security_groups", (Ref(ONE), Ref(rubbish))),
                ("private_networks", (Ref(rubbish),)),
                ("anti_affinity_groups", (Ref(rubbish),)),
            )
        ),
    ]
    for ask in asks:
        with pytest.raises(InvalidRequest):
            ask()
    assert api.instance_types([rubbish]) == {rubbish: None}
    assert zone.server.requests == []


def test_exoscale_api_refuses_negative_sizes_and_empty_evictions_and_dedups_names() -> None:
    zone = script(scripted(200, BEGUN))
    api = zone.api()
    with pytest.raises(InvalidRequest):
        api.scale_pool(POOL, -1)
    with pytest.raises(InvalidRequest):
        api.evict_pool(POOL, [])
    with pytest.raises(InvalidRequest):
        api.create_nodepool(CLUSTER, msgspec.structs.replace(NEW, size=0))
    api.evict_nodepool(CLUSTER, NODEPOOL, [ONE, ONE.upper(), TWO])
    assert [sent(request) for request in zone.server.requests] == [{"instances": [ONE, TWO]}]


# -- attempts


@each_row("name", [*READS, "scale_pool", "scale_nodepool"])
def test_exoscale_api_reads_and_absolute_sizes_are_tried_three_times(name: str) -> None:
    zone = script(scripted(503, "busy"), scripted(500), scripted(200, CALLS[name][2]))
    assert CALLS[name][1](zone.api())
    assert len(zone.server.requests) == 3


@each_row(
    ("name", "answer"),
    [
        (name, answer)
        for name in ("evict_pool", "evict_nodepool", "create_nodepool", "delete_nodepool")
        for answer in (scripted(503, "busy"), NO_ANSWER, scripted(200, b'{"id": "x"}', cut=3))
    ],
)
def test_exoscale_api_change_that_is_not_absolute_is_sent_once(name: str, answer: Answer) -> None:
    zone = script(*[answer] * 3)
    with pytest.raises(Transient):
        CALLS[name][1](zone.api())
    assert len(zone.server.requests) == 1


@each_row("name", CHANGES)
def test_exoscale_api_busy_pool_is_reported_at_once(name: str) -> None:
    zone = script(scripted(409, {"message": "Operation in progress"}))
    with pytest.raises(Conflict) as raised:
        CALLS[name][1](zone.api())
    assert raised.value.message.endswith("HTTP 409: Operation in progress")
    assert len(zone.server.requests) == 1


def test_exoscale_api_throttling_pauses_all_callers_for_the_vendors_time() -> None:
    def slow(seconds: str) -> Answer:
        return scripted(429, {"message": "slow"}, {"Retry-After": seconds})

    zone = script(slow("2"), scripted(200, {}), slow("7"))
    zone._pacer = limits = RecordedLimits()  # type: ignore[assignment]
    assert zone.api().pools() == ()
    assert zone.slept() == 2.0
    with pytest.raises(Throttled) as reported:
        zone.api().pools()
    assert reported.value.retry_after == 7.0
    assert limits.pauses[-1][1] == 7.0


def test_exoscale_api_unreachable_host_is_temporary_and_names_the_call() -> None:
    with pytest.raises(Transient, match="/v2/instance-pool"):
        script(*[NO_ANSWER] * 3).api().pools()


# -- the key


@each_row("status", [401, 403])
def test_exoscale_api_refused_key_is_reported_once_without_the_key(status: int) -> None:
    zone = opened()
    key = json.loads(zone.read_secret())
    zone.server.reply(
        ".",
        *[scripted(status, {"message": f"key {key['apiKey']} with {key['apiSecret']} is refused"})]
        * 2,
    )
    secrets = RotatedSecrets(**{"outscaler/exoscale/credentials": zone.read_secret()})
    with pytest.raises(Unauthorized) as raised:
        zone.api(secrets).pools()
    assert len(zone.server.requests) == 1
    assert secrets.fresh_reads == 1
    shown = json.dumps([str(raised.value), repr(raised.value), raised.value.code])
    assert key["apiKey"] not in shown
    assert key["apiSecret"] not in shown
    assert "***" in shown
    assert is_forbidden(raised.value) is (status == 403)


def test_exoscale_api_replaced_key_is_read_once_more() -> None:
    zone = opened()
    name = "outscaler/exoscale/credentials"
    secrets = RotatedSecrets(**{name: zone.read_secret()})
    zone._rotate()
    secrets.now[name] = zone.read_secret()
    api = zone.api(secrets)
    assert api.pools() == ()
    zone._rotate()
    with pytest.raises(Unauthorized):
        api.pools()
    assert [call.status for call in zone.look()] == [401, 200, 401]
    assert secrets.fresh_reads == 1


def test_exoscale_api_unusable_secret_is_an_error_of_the_call() -> None:
    zone = opened()
    with pytest.raises(Unauthorized, match="apiSecret is missing"):
        zone.api(lambda _: '{"apiKey": "EXO-EXAMPLE"}').pools()

    def gone(name: str) -> str:
        raise SecretUnavailable(f"secret {name} cannot be read")

    with pytest.raises(Transient, match="cannot be read"):
        zone.api(gone).pools()
    assert zone.server.requests == []


def test_exoscale_api_rate_limit_key_is_per_key_and_zone_and_shows_no_secret() -> None:
    zone = opened()
    zone._pacer = limits = RecordedLimits()  # type: ignore[assignment]
    api = zone.api(callsPerSecond="2.5")
    api.expect(40)
    for _ in range(6):
        api.pools()
    assert [calls for _, calls in limits.granted] == [40]
    [limit] = limits.limits
    assert limit.rate == 2.5
    assert limit.key.startswith("exoscale/")
    assert limit.key.endswith("/ch-gva-2/api")
    assert zone.key_id not in limit.key


# -- cached reads


def test_exoscale_quota_is_cached_for_five_minutes_and_fresh_where_needed() -> None:
    zone = opened()
    zone.zone.limit, zone.zone.other_usage, zone.shared_cache = 20, 4, KeptCache()

    def usage() -> int:
        return zone.api().quota().usage

    assert usage() == 4
    zone.zone.other_usage = 5
    zone.settle(299.0)
    assert usage() == 4
    zone.settle(1.0)
    assert usage() == 5
    zone.zone.other_usage = 6
    assert zone.api().quota_now() == Quota("instance", 6, 20)
    zone.zone.other_usage = 7
    assert usage() == 6
    zone.clock._now -= 3600.0
    assert usage() == 7
    assert zone.operations() == ["get-quota"] * 4


@each_row(
    "answer",
    [
        scripted(500),
        scripted(403, {"message": "no"}),
        scripted(200, {"message": "x"}),
        scripted(404),
    ],
)
def test_exoscale_unreadable_quota_uses_the_last_one_for_a_day(answer: Answer) -> None:
    zone = opened()
    zone.zone.limit, zone.zone.other_usage, zone.shared_cache = 20, 4, KeptCache()
    assert zone.api().quota().limit == 20
    zone.server.reply(".", answer, always=True)
    zone.settle(23 * 3600.0)
    assert zone.api().quota() == Quota("instance", 4, 20)
    zone.settle(2 * 3600.0)
    with pytest.raises(ProviderError):
        zone.api().quota()


@each_row(
    "body",
    [
        {},
        {"limit": 20},
        {"usage": 4},
        {"usage": 4, "limit": None},
        {"usage": -1, "limit": 5},
        {"usage": 4, "limit": -2},
        {"usage": "4", "limit": 20},
        {"usage": 4.5, "limit": 20},
        {"usage": 4, "limit": 10**30},
        {"usage": 1e30, "limit": 9},
    ],
)
def test_exoscale_partial_quota_is_neither_zero_nor_unlimited(body: dict[str, object]) -> None:
    zone = script(scripted(200, body))
    zone.shared_cache = cache = KeptCache()
    with pytest.raises(Unknown):
        zone.api().quota()
    assert cache.rows == {}


def test_exoscale_types_are_cached_for_a_day_and_unknown_ones_for_an_hour() -> None:
    zone, other = opened(), TYPE.replace("a1", "c7")
    zone.shared_cache = KeptCache()

    def types() -> list[bool]:
        found = zone.api().instance_types([TYPE, other, TYPE])
        return [found[name] is not None for name in (TYPE, other)]

    assert types() == types() == [True, False]
    assert len(zone.operations()) == 2
    zone.settle(3601.0)
    assert types() == [True, False]
    assert len(zone.operations()) == 1
    zone.settle(86400.0)
    assert types() == [True, False]
    assert len(zone.operations()) == 2


def test_exoscale_types_read_before_an_error_are_cached_and_malformed_are_absent() -> None:
    zone, odd, dead = opened(), TYPE.replace("a1", "c7"), TYPE.replace("a1", "d8")
    zone.shared_cache = KeptCache()
    zone.server.reply(
        odd,
        scripted(200, {"id": odd, "memory": "much"}),
        scripted(200, {**KIND, "id": odd, "memory": 10**30}),
    )
    zone.server.reply(dead, scripted(503), always=True)
    assert zone.api().instance_types([TYPE, odd]).keys() == {TYPE}
    with pytest.raises(Transient):
        zone.api().instance_types([TYPE, dead])
    assert zone.api().instance_types([TYPE, odd]).keys() == {TYPE}
    before = len(zone.server.requests)
    assert zone.api().instance_types([TYPE]).keys() == {TYPE}
    assert len(zone.server.requests) == before
