"""Whatever people, ESS and the network do: only what was planned is bought, only who was named goes, all has an end.

What happens and what is checked after every step is said in disorder.py.
"""

from __future__ import annotations

import pytest

from tests.contract.alicloud.concurrency import Disorder


@pytest.mark.parametrize("seed", range(6))
def test_ALI_DEFECT_6_with_faults_and_lost_processes_no_machine_is_bought_twice_or_lost(seed: int) -> None:
    Disorder(seed).live(8)


# At 60 a person lowers the maximum below what there is while we take placeholders back.
@pytest.mark.parametrize("seed", [1, 10, 15, 60, 124])
def test_ALI_15_whatever_people_change_meanwhile_nobody_goes_who_was_not_named(seed: int) -> None:
    Disorder(seed, people=True).live(8)


@pytest.mark.parametrize("seed", range(4))
def test_ALI_16_answers_that_are_not_as_documented_cost_no_machine_and_end_nothing(seed: int) -> None:
    Disorder(seed, lies=0.15).live(8)
