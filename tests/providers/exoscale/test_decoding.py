"""Every answer of the vendor is decoded or refused by a provider error;
none of them crashes a pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.providers.exoscale.decoding import (
    InstancePool,
    InstanceType,
    Work,
    read_change,
    read_clusters,
    read_instances,
    read_one,
    read_pools,
    read_quota,
)
from chalicelib.providers.exoscale.error_mapping import error_for, work_error
from chalicelib.providers.kit.errors import ProviderError, Transient
from chalicelib.providers.kit.http import VendorResponse
from tests.cases import each_row
from tests.providers.exoscale.fixture import BEGUN, INSTANCE, INSTANCE_POOL, KIND, SKS, WORK
from tests.providers.exoscale.fixture import MEDIUM as TYPE
from tests.providers.exoscale.fixture import A as POOL

READERS: dict[str, Callable[[VendorResponse], object]] = {
    "instances": read_instances,
    "pools": read_pools,
    "clusters": read_clusters,
    "pool": lambda answer: read_one(answer, InstancePool, POOL),
    "type": lambda answer: read_one(answer, InstanceType, TYPE),
    "work": lambda answer: read_one(answer, Work, WORK),
    "quota": read_quota,
    "change": read_change,
}
RIGHT: dict[str, dict[str, Any]] = {
    "instances": {"instances": [INSTANCE]},
    "pools": {"instance-pools": [INSTANCE_POOL]},
    "clusters": {"sks-clusters": [SKS]},
    "pool": INSTANCE_POOL,
    "type": KIND,
    "work": BEGUN,
    "quota": {"resource": "instance", "usage": 4, "limit": 20},
    "change": BEGUN,
}
RUBBISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9)
    | st.just(POOL),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "size",
                    "state",
                    "manager",
                    "instances",
                    "nodepools",
                    "message",
                    "reason",
                    "x",
                ]
            ),
            below,
            max_size=4,
        )
    ),
    max_leaves=9,
)


def places(thing: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yields the path of every nested value."""
    inside: list[tuple[Any, object]] = (
        list(thing.items())
        if isinstance(thing, dict)
        else list(enumerate(thing))
        if isinstance(thing, list)
        else []
    )
    return [place for key, value in inside for place in [(*at, key), *places(value, (*at, key))]]


def answered(body: object, status: int = 200) -> VendorResponse:
    return VendorResponse("GET api.example/v2/x", status, {}, json.dumps(body).encode())


def refusal(name: str, body: object) -> ProviderError | None:
    try:
        READERS[name](answered(body))
    except ProviderError as error:
        return error
    return None


@each_row("name", READERS)
def test_exoscale_decoding_valid_answers(name: str) -> None:
    assert READERS[name](answered(RIGHT[name]))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.data(), RUBBISH)
def test_exoscale_decoding_survives_one_wrong_value_anywhere(
    name: str, data: st.DataObject, rubbish: object
) -> None:
    body = json.loads(json.dumps(RIGHT[name]))
    place = data.draw(st.sampled_from(places(body)))
    inner = body
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = rubbish
    error = refusal(name, body)
    if error is not None:
        assert error.message.startswith("GET api.example/v2/x: ")
        assert len(error.message) < 400
        assert (name == "change") is isinstance(error, Transient)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(READERS)), RUBBISH)
def test_exoscale_decoding_malformed_answer_is_refused_and_never_an_empty_list(
    name: str, rubbish: object
) -> None:
    try:
        found = READERS[name](answered(rubbish))
    except ProviderError:
        return
    if found == ():
        assert isinstance(rubbish, dict)
        assert any(value in ([], None) for value in rubbish.values()) or not rubbish


@settings(max_examples=200, deadline=None)
@given(st.integers(300, 599), st.one_of(RUBBISH, st.binary(max_size=20)))
def test_exoscale_decoding_every_refusal_is_a_provider_error(status: int, body: object) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = error_for(VendorResponse("PUT api.example/v2/x", status, {}, raw))
    assert error.message.startswith(f"PUT api.example/v2/x: HTTP {status}")
    assert error.code == str(status)


@given(st.text(max_size=9), st.text(max_size=9), st.text(max_size=400))
def test_exoscale_decoding_every_failed_operation_is_a_provider_error(
    state: str, reason: str, message: str
) -> None:
    assert len(work_error(Work(WORK, state, reason, message)).message) <= 300
