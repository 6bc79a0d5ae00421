"""Cached values are found until they expire, and no failure of the cache is reported."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from chalicelib.providers.kit.services import Cache
from chalicelib.store.tables import CACHE, CacheRow
from infra.emulators.aws_faults import busy, lost_answer
from infra.emulators.controllers.clock import ManualClock
from tests.unit.store.support import START, RequestCounter, StoreFixture

DAY = 86_400.0
TYPES = b'[{"InstanceTypeId":"ecs.g7.large","CpuCoreCount":2,"MemorySize":8.0}]' * 400


def test_cache_value_is_found_by_another_function(bench: StoreFixture) -> None:
    cache: Cache = bench.store.cache
    cache.put(f"types/{bench.cluster}", TYPES, DAY)
    assert bench.fresh().cache.get(f"types/{bench.cluster}") == TYPES
    assert bench.fresh().cache.get(f"types/{bench.cluster}/other") is None


def test_cache_value_is_stored_compressed_in_one_row(bench: StoreFixture) -> None:
    with RequestCounter(bench) as counter:
        bench.store.cache.put(bench.cluster, TYPES, DAY)
        bench.store.cache.get(bench.cluster)
    assert (counter.items_written, counter.items_read) == (1, 1)
    row = bench.store.table.get(CacheRow, CACHE, bench.cluster)
    assert row is not None
    assert len(row.blob) < len(TYPES) / 10


def test_cache_expiry_is_checked_and_not_left_to_dynamodb(bench: StoreFixture) -> None:
    bench.store.cache.put(bench.cluster, TYPES, 100.0)
    bench.clock.advance(99.9)
    assert bench.store.cache.get(bench.cluster) == TYPES
    bench.clock.advance(0.1)
    assert bench.store.cache.get(bench.cluster) is None
    row = bench.store.table.get(CacheRow, CACHE, bench.cluster)
    assert row is not None
    assert START + 100 < row.expires_at < START + 100 + 2 * 3600


def test_cache_value_with_a_time_far_ahead_is_ignored(bench: StoreFixture) -> None:
    ahead, behind = (
        dataclasses.replace(bench, clock=ManualClock(START + by), _store=None)
        for by in (10 * DAY, -5.0)
    )
    ahead.store.cache.put(bench.cluster, TYPES, DAY)
    assert bench.store.cache.get(bench.cluster) is None
    bench.store.cache.put(bench.cluster, TYPES, DAY)
    assert behind.store.cache.get(bench.cluster) == TYPES


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_cache_invalid_lifetime_stores_nothing(bench: StoreFixture, seconds: float) -> None:
    bench.store.cache.put(bench.cluster, TYPES, seconds)
    assert bench.store.cache.get(bench.cluster) is None


def test_cache_value_too_large_for_a_row_is_not_stored(bench: StoreFixture) -> None:
    noise = random.Random(1).randbytes(400_000)
    bench.store.cache.put(bench.cluster, noise, DAY)
    assert bench.store.cache.get(bench.cluster) is None
    bench.store.cache.put(bench.cluster, bytes(9 * 2**20), DAY)
    assert bench.store.cache.get(bench.cluster) is None
    bench.store.cache.put(bench.cluster, noise[:290_000], DAY)
    assert bench.store.cache.get(bench.cluster) == noise[:290_000]


@pytest.mark.parametrize("damage", ["cut", "rubbish", "missing"])
def test_cache_unreadable_row_counts_as_missing(bench: StoreFixture, damage: str) -> None:
    bench.store.cache.put(bench.cluster, TYPES, DAY)
    row = bench.store.table.get(CacheRow, CACHE, bench.cluster)
    assert row is not None
    row.blob = {"cut": row.blob[:-20], "rubbish": b"<html>", "missing": None}[damage]
    bench.store.table.write(bench.store.table.put(row))
    assert bench.store.cache.get(bench.cluster) is None


def test_cache_without_an_answer_from_the_table_stores_nothing_and_is_silent(
    bench: StoreFixture,
) -> None:
    bench.faults.instead("put_item", lost_answer())
    bench.store.cache.put(bench.cluster, TYPES, DAY)
    bench.faults.instead("get_item", busy("AccessDeniedException"))
    assert bench.store.cache.get(bench.cluster) is None
    assert bench.store.cache.get(bench.cluster) is None
    bench.store.cache.put(bench.cluster, TYPES, DAY)
    assert bench.store.cache.get(bench.cluster) == TYPES


def test_cache_key_too_long_for_the_table_still_works(bench: StoreFixture) -> None:
    key = "k" * 3000 + bench.cluster
    bench.store.cache.put(key, b"", DAY)
    assert bench.store.cache.get(key) == b""
