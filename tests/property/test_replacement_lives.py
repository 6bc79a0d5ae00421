"""Replacements keep their invariants through any life: nothing is bought twice, no node is
drained before what was bought for it is ready, a node is in one row at most, limits hold,
and every replacement ends."""

from __future__ import annotations

import pytest

from tests.amounts import examples
from tests.property.replacement_lives import ReplacementLives

PASSES, QUIET_PASSES = 60, 60


@pytest.mark.more
@pytest.mark.parametrize("part", range(4))
def test_replacements_keep_their_invariants_and_end(part: int) -> None:
    happened = dict.fromkeys(("bought", "drained", "done", "failed"), 0)
    many = examples(8, 400)
    for seed in range(part * many, (part + 1) * many):
        lives = ReplacementLives(seed)
        for _ in range(PASSES):
            lives.step()
        lives.quiet = True
        for _ in range(QUIET_PASSES):
            lives.step()
        assert lives.under_way == [], f"seed {seed}"
        assert lives.operations == {}, f"seed {seed}"
        happened = {name: count + lives.counts[name] for name, count in happened.items()}
    assert all(count >= many for count in happened.values()), happened
