"""Planning time of one hostile tenant's pods, as a multiple of an ordinary pass with as many
pods; measured in one run."""

from __future__ import annotations

import time

import pytest

from tests.property import hostile_objects, hostile_tenants

MOST = 150.0  # multiple of the CPU seconds for 800 plain pods of 800 classes


def _seconds(case: str) -> float:
    objects = list(hostile_objects.CASES[case]())
    started = time.process_time()
    assert hostile_tenants.served(hostile_tenants.planned(objects)) == hostile_objects.VICTIMS
    return time.process_time() - started


@pytest.fixture(scope="module")
def ordinary() -> float:
    return min(_seconds("own-labels") for _ in range(2))


@pytest.mark.parametrize("case", sorted(hostile_objects.CASES))
def test_planning_time_of_an_attack_is_a_limited_multiple_of_an_ordinary_pass(
    case: str, ordinary: float
) -> None:
    seconds = _seconds(case)
    print(f"{case}: {seconds:.2f} s, {seconds / ordinary:.0f} times {ordinary:.2f} s")
    assert seconds < ordinary * MOST
