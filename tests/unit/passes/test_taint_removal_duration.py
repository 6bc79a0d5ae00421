"""Test for an audit finding in the taint writer: removing hundreds of old taints must not
exceed the function's time."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from chalicelib.model.plan import TaintUpdate
from chalicelib.passes import soft_taints
from chalicelib.plan.removal.taint_updates import REMOVE_STALE_TAINT
from chalicelib.policy.settings.cluster_options import Options


def test_hundreds_of_old_taints_are_removed_over_several_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soft_taints, "remove_taint", lambda *_, **__: True)
    seconds = count(1_800_000_000)
    nowhere: Any = None

    def clock() -> float:
        return float(next(seconds))  # every read of the clock takes a second

    marks = tuple(TaintUpdate(f"n{number:03d}", REMOVE_STALE_TAINT) for number in range(500))
    written = soft_taints.apply(marks, nowhere, Options(), clock, lambda _: None)
    assert 1 <= len(written) <= soft_taints.CLEANING
    assert written == marks[: len(written)]
