"""Requests that are made once per operation, whatever happens to their answers."""

from __future__ import annotations

import pytest

from chalicelib.providers.kit.errors import Conflict, ProviderError, Transient
from chalicelib.providers.kit.services import Cache, NullCache, OneTimeRequests
from tests.cases import each_row
from tests.providers.emulated import KeptCache


class CountedRequest:
    """Counts requests; errors: of the next ones."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors, self.made = list(errors), 0

    def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return f"answer {self.made}"


def send(
    cache: Cache,
    vendor: CountedRequest,
    operation: str = "op-1",
    now: float = 1000.0,
    name: str = "v",
) -> str:
    """Makes the request as a function that has just started."""
    return OneTimeRequests(cache, name, lambda: now).send(operation, vendor)


def test_one_time_request_is_made_once_per_operation_and_vendor() -> None:
    cache, vendor = KeptCache(), CountedRequest()
    assert [send(cache, vendor) for _ in range(3)] == ["answer 1"] * 3
    assert send(cache, vendor, "op-2") == "answer 2"
    assert send(cache, vendor, name="w") == "answer 3"
    assert send(cache, vendor, now=1000.0 + 3601.0) == "answer 4"


@each_row(
    "error",
    [Transient("no answer"), Transient("half an answer", code="Shape"), KeyboardInterrupt()],
)
def test_one_time_request_without_an_answer_counts_as_made(error: BaseException) -> None:
    cache, vendor = KeptCache(), CountedRequest(error)
    with pytest.raises(type(error)):
        send(cache, vendor)
    assert [send(cache, vendor), send(cache, vendor)] == ["", ""]
    assert vendor.made == 1


@each_row(
    "error",
    [Conflict("busy", code="409"), Transient("failed", code="503"), ProviderError("refused")],
)
def test_one_time_request_that_the_vendor_refuses_is_made_again(error: ProviderError) -> None:
    cache, vendor = KeptCache(), CountedRequest(error)
    with pytest.raises(type(error)):
        send(cache, vendor)
    assert [send(cache, vendor), send(cache, vendor)] == ["answer 2", "answer 2"]


def test_one_time_request_is_repeated_without_a_shared_cache() -> None:
    vendor = CountedRequest()
    assert [send(NullCache(), vendor), send(NullCache(), vendor)] == ["answer 1", "answer 2"]


def test_one_time_request_is_made_if_its_row_cannot_be_read() -> None:
    cache, vendor = KeptCache(), CountedRequest()
    cache.rows["v/once/op-1"] = b"not json"
    assert send(cache, vendor) == "answer 1"
