"""Whatever people, the vendor and the network do: nothing is bought twice, only who was named goes, all has an end.

What happens and what is checked after every step is said in disorder.py.
"""

from __future__ import annotations

import pytest

from tests.contract.cherryservers.concurrency import Disorder


@pytest.mark.parametrize("seed", range(6))
def test_with_faults_and_lost_processes_nothing_is_bought_twice_and_nobody_lost(seed: int) -> None:
    Disorder(seed).live(7)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_people_change_meanwhile_nobody_goes_who_was_not_named(seed: int) -> None:
    Disorder(seed, people=True).live(7)


@pytest.mark.parametrize("seed", range(4))
def test_answers_that_are_not_as_documented_cost_no_server_and_end_nothing(seed: int) -> None:
    Disorder(seed, lies=0.15).live(7)
