"""Whatever users, ESS and the network do, only planned machines are bought, only named ones are
removed, and every operation ends.

disorder.py describes the events and the checks after every step.
"""

from __future__ import annotations

import pytest

from tests.amounts import examples
from tests.providers.alicloud.concurrency import Disorder


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(3, 6)))
def test_alicloud_faults_and_lost_processes_never_buy_twice_or_lose_a_machine(seed: int) -> None:
    Disorder(seed).live(8)


# In run 60 a user lowers the maximum below the current size while placeholders are being removed.
@pytest.mark.more
@pytest.mark.parametrize("seed", [1, 10, 15, 60, 124][: examples(3, 5)])
def test_alicloud_concurrent_user_changes_remove_only_named_instances(seed: int) -> None:
    Disorder(seed, people=True).live(8)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(2, 4)))
def test_alicloud_undocumented_answers_lose_no_machine_and_end_no_operation(seed: int) -> None:
    Disorder(seed, lies=0.15).live(8)
