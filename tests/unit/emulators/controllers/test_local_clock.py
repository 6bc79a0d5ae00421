from __future__ import annotations

import contextlib
import math
import threading

import pytest

from infra.emulators.controllers.clock import Clock, ManualClock


def test_local_fast_clock_advances_by_its_factor() -> None:
    wall = ManualClock(50.0)
    clock = Clock(1000.0, 60.0, wall)
    wall.advance(2.0)
    assert clock() == clock.now() == 1120.0
    assert clock.wall_seconds(30.0) == 0.5


def test_local_fast_clock_becomes_the_real_time_when_it_reaches_it() -> None:
    wall = ManualClock(50.0)
    clock = Clock(1000.0, 25.0, wall, present=1240.0)
    seen = []
    for _ in range(4):
        seen.append((clock(), 1240.0 + wall() - 50.0, clock.until_present()))
        wall.advance(4.0)
    assert seen == [
        (1000.0, 1240.0, 10.0),
        (1100.0, 1244.0, 6.0),
        (1200.0, 1248.0, 2.0),
        (1252.0, 1252.0, 0.0),
    ]


def test_local_fast_clock_knows_how_long_a_duration_takes_across_that_instant() -> None:
    wall = ManualClock(0.0)
    clock = Clock(0.0, 25.0, wall, present=240.0)
    for virtual in (0.0, 100.0, 250.0, 300.0):  # it is the real time from 250 on, after 10 seconds
        due, began = clock() + virtual, wall()
        wall.advance(clock.wall_seconds(virtual))
        assert clock() == pytest.approx(due)
        wall.advance(0.0 if virtual else 1.0)
        assert wall() - began <= virtual + 1.0
    assert clock() == pytest.approx(240.0 + wall())


@pytest.mark.parametrize(
    ("speed", "start", "left"), [(1.0, 5.0, 0.0), (1.0, 0.0, math.inf), (25.0, 9.0, 0.0)]
)
def test_local_clock_without_a_gap_shows_the_real_time_at_once(
    speed: float, start: float, left: float
) -> None:
    clock = Clock(start, speed, ManualClock(0.0), present=5.0)
    assert (clock(), clock.until_present()) == (min(start, 5.0), left)


def test_local_clock_is_slower_until_the_last_of_those_that_work_has_left() -> None:
    wall = ManualClock(0.0)
    clock = Clock(100.0, 50.0, wall, at_work=4.0)
    seen = []

    def passes() -> None:
        wall.advance(1.0)
        seen.append(clock())

    passes()
    with clock.working():
        passes()
        with contextlib.suppress(KeyError), clock.working():
            passes()
            raise KeyError
        passes()
    passes()
    assert seen == [150.0, 154.0, 158.0, 162.0, 212.0]


def test_local_clock_at_work_sleeps_until_the_virtual_time_has_come() -> None:
    wall = ManualClock(0.0)
    clock = Clock(0.0, 50.0, wall, at_work=5.0)
    with clock.working():
        clock.sleep(20.0, wall.advance)
        assert 20.0 <= clock() < 20.1
        clock.sleep(20.0, lambda seconds: seconds > 0.0)  # an Event that is set
    assert 4.0 <= wall() < 4.1


def test_local_clock_jumps_forward_and_not_past_the_real_time() -> None:
    wall = ManualClock(50.0)
    clock = Clock(1000.0, 60.0, wall, present=90_000.0)
    clock.jump(20_000.0)
    assert clock() == 20_000.0
    wall.advance(1.0)
    assert clock() == 20_060.0
    clock.jump(1_000.0)
    assert clock() == 20_060.0
    clock.jump(100_000.0)
    assert (clock(), clock.until_present()) == (90_001.0, 0.0)


def test_local_clock_jumps_only_when_nothing_works() -> None:
    clock, began = Clock(1000.0, 60.0, ManualClock(0.0)), threading.Event()

    def jump() -> None:
        began.set()
        clock.jump(5000.0)

    thread = threading.Thread(target=jump)
    with clock.working():
        thread.start()
        began.wait()
        assert clock() == 1000.0
    thread.join()
    assert clock() == 5000.0


def test_local_clock_always_advances() -> None:
    with pytest.raises(ValueError, match="time must pass"):
        Clock(0.0, 0.0, ManualClock(0.0))
    with pytest.raises(ValueError, match="time must pass"):
        Clock(0.0, 1.0, ManualClock(0.0), at_work=0.0)
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock(0.0).advance(-1.0)
