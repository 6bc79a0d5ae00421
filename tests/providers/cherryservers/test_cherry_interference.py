"""Whatever users, the vendor and the network do, nothing is bought twice, only named servers go,
and every operation ends.

disorder.py describes the events and the checks after every step.
"""

from __future__ import annotations

import pytest

from tests.amounts import examples
from tests.providers.cherryservers.concurrency import Disorder


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(3, 6)))
def test_cherryservers_faults_and_lost_processes_never_buy_twice_or_lose_a_server(
    seed: int,
) -> None:
    Disorder(seed).live(7)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(2, 4)))
def test_cherryservers_concurrent_user_changes_remove_only_named_servers(seed: int) -> None:
    Disorder(seed, people=True).live(7)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(2, 4)))
def test_cherryservers_undocumented_answers_lose_no_server_and_end_no_operation(seed: int) -> None:
    Disorder(seed, lies=0.15).live(7)
