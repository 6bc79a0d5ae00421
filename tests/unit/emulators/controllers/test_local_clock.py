from __future__ import annotations

import pytest

from infra.emulators.controllers.clock import Clock, ManualClock


def test_local_fast_clock_advances_by_its_factor() -> None:
    wall = ManualClock(50.0)
    clock = Clock(1000.0, 60.0, wall)
    wall.advance(2.0)
    assert clock() == clock.now() == 1120.0
    assert clock.wall_seconds(30.0) == 0.5


def test_local_clock_always_advances() -> None:
    with pytest.raises(ValueError, match="time must pass"):
        Clock(0.0, 0.0, ManualClock(0.0))
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock(0.0).advance(-1.0)
