"""Arbitrary and malformed answers never crash the decoding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.providers.huaweicloud import decoding
from chalicelib.providers.huaweicloud.decoding import read_pool
from chalicelib.providers.huaweicloud.models import NodePool
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    NotFound,
    ProviderError,
    Transient,
    Unknown,
)
from infra.emulators.vendor_common.http_messages import scripted
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import EmulatedCce, bent, refusal, script
from tests.providers.huaweicloud.test_api_calls import CALLS, READS
from tests.providers.huaweicloud.test_decoding import CCE_NODE, NODE, NODE_POOL, answer, many

# -- arbitrary input


@each_row("name", READS)
@each_row("body", [b"", b"{", b"\xff", b"[" * 5000, b"null"])
def test_CCE_20_body_that_is_not_a_json_object_is_an_error_of_the_call(
    name: str, body: bytes
) -> None:
    cce = script(*[scripted(200, body)] * 3)
    with pytest.raises((Transient, Unknown)):
        CALLS[name][1](cce.api())


@each_row(
    ("names", "expected", "match"),
    [
        (("pools", "nodes", "addons", "flavors", "phase"), InvalidRequest, "clusterId"),
        (("pool", "node", "job", "delete"), NotFound, "Resource not found"),
    ],
)
def test_huawei_api_404_of_a_list_is_a_wrong_address_and_of_an_object_is_gone(
    names: tuple[str, ...], expected: type[ProviderError], match: str
) -> None:
    for name in names:
        api = script(refusal(404, "CCE.01404001", "Resource not found")).api()
        with pytest.raises(expected, match=match):
            CALLS[name][1](api)


@each_row(
    "wrong",
    [
        "",
        "x",
        f"{NODE}?nodepoolScaleDown=NoScaleDown",
        f"{NODE}/",
        "../nodepools",
        f"{NODE}\n",
        "DefaultPool",
    ],
)
def test_huawei_api_only_ids_become_part_of_a_url(wrong: str) -> None:
    cce = EmulatedCce()
    api = cce.api()
    for ask in (
        api.pool,
        api.node,
        api.job,
        api.delete_node,
        lambda id_: api.scale(id_, 1, "default"),
    ):
        with pytest.raises(InvalidRequest):
            ask(wrong)
    assert cce.server.requests == []


rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def _paths(thing: Any, at: str = "") -> list[str]:
    inner = (
        thing.items()
        if isinstance(thing, dict)
        else enumerate(thing)
        if isinstance(thing, list)
        else ()
    )
    return [
        found
        for key, value in inner
        for found in (f"{at}{key}", *_paths(value, f"{at}{key}."))
        if "." not in str(key)
    ]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(_paths(NODE_POOL)), rubbish)
def test_CCE_20_arbitrary_value_in_a_pool_never_crashes(path: str, value: object) -> None:
    pool = read_pool(bent(NODE_POOL, path, value))
    assert isinstance(pool, NodePool)
    assert pool.error or (pool.desired >= 0 and pool.group("default"))


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(_paths(CCE_NODE)), rubbish)
def test_CCE_20_arbitrary_value_in_a_node_never_crashes(path: str, value: object) -> None:
    try:
        (node,), _ = decoding.nodes_of(answer(many(bent(CCE_NODE, path, value))))
    except ProviderError:
        return
    assert node.id


@settings(max_examples=60, deadline=None)
@given(rubbish)
def test_CCE_20_arbitrary_answer_never_crashes(body: object) -> None:
    for read in (
        decoding.pools_of,
        decoding.nodes_of,
        decoding.addons_of,
        decoding.flavors_of,
        decoding.phase_of,
        decoding.job_id_of,
    ):
        try:
            read(answer(body))
        except ProviderError:
            continue
