"""Target decrease: only machines that are missing are given up."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers import errors
from chalicelib.providers.exoscale.decoding import Work
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    A,
    continued,
    provider,
    shrink,
    to_the_end,
)
from tests.unit.providers.exoscale.test_resize import sks, standalone

# -- target decrease


def test_exoscale_decrease_target_lowers_only_missing_machines_for_good() -> None:
    api = sks(2)
    api.all[A].size = 5
    assert isinstance(to_the_end(api, shrink(5, 3)), Succeeded)
    assert api.writes() == ["scale_nodepool web 3"]
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (3, 3, [])  # the vendor retries once
    assert isinstance(to_the_end(api, shrink(5, 3)), Succeeded)
    assert len(api.writes()) == 1


def test_exoscale_decrease_target_waits_while_the_vendor_creates_machines() -> None:
    api = sks(2)
    api.all[A].size, api.all[A].state = 5, "scaling-up"
    with pytest.raises(errors.Conflict):
        provider(api).decrease_target(shrink(5, 3))
    assert not api.writes()


def test_exoscale_decrease_target_below_the_existing_size_is_refused() -> None:
    api = sks(4)
    outcome = provider(api).decrease_target(shrink(4, 3))
    assert isinstance(outcome, Failed)
    assert "4 machines that exist" in outcome.message
    assert not api.writes()


def test_exoscale_decrease_target_counts_machines_missing_in_the_pools_list() -> None:
    api = sks(4)
    api.all[A].more["instances"] = ()
    assert isinstance(provider(api).decrease_target(shrink(4, 1)), Failed)
    assert not api.writes()


def test_exoscale_decrease_target_not_carried_out_is_reported() -> None:
    api = sks(2, lag=True, steps=10_000)
    api.all[A].size = 5
    asked = continued(shrink(5, 2), provider(api).decrease_target(shrink(5, 2)))
    api.works[asked.status.data["work"]] = Work(asked.status.data["work"], "success")
    outcome = provider(api).poll(asked)
    while isinstance(outcome, InProgress):
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert "still has the size 5" in outcome.message


def test_exoscale_decrease_target_keeps_the_last_of_a_standalone_pool() -> None:
    api = standalone(1)
    api.all[A].members.clear()
    api.machines.clear()
    outcome = provider(api).decrease_target(shrink(1, 0))
    assert isinstance(outcome, Failed)
    assert not api.writes()


@each_row(("start", "to"), [(6, 3), (5, -1)])
def test_exoscale_decrease_target_from_another_or_to_no_size_is_refused(start: int, to: int) -> None:
    api = sks(2)
    api.all[A].size = 5
    assert isinstance(provider(api).decrease_target(shrink(start, to)), Failed)
    assert not api.writes()
