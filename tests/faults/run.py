"""Runs seeds: `python -m tests.faults.run --seeds 0-99 [--steps 200] [--jobs 2]
[--consolidation | --steering] [--managed exoscale] [-v]`.

For every broken seed the report has the invariant, every step, and the command that repeats it; -v
also lists the successful runs. The exit code is 1 if any seed broke an invariant. Runs are not
shrunk here; hypothesis shrinks those it finds itself (stateful.py).
"""

from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from random import Random
from unittest.mock import patch

import msgspec

from chalicelib.plan.removal.consolidation import steering
from chalicelib.providers.cherryservers import api as cherry_api
from infra.tools.interruptible import run
from tests.faults.final_checks import finish
from tests.faults.mark_checks import finish_marks
from tests.faults.run_state import Broken, FaultRun
from tests.faults.run_steps import a_mark, any_step

STEPS, STEERED_STEPS = 200, 120
FIRST_MARK_EVENTS = 2
"""What befalls marks before the first pass writes some."""
MOST_CANDIDATES = 3
"""Nodes above which a horizon begins in these small clusters."""


class Played(msgspec.Struct, frozen=True):
    """One seed. broken: the report, empty if all invariants held. counts: observed events."""

    seed: int
    broken: str
    counts: dict[str, int]
    trace: tuple[str, ...]


def play(
    seed: int,
    steps: int = 0,
    *,
    consolidates: bool = False,
    steers: bool = False,
    provider: str = "",
) -> Played:
    """Runs one seed to the end. steps: 0 for the usual number. consolidates: with replacements of
    nodes; steers: with consolidation that marks nodes, too. provider: with managed pools there."""
    dice, consolidates = Random(seed), consolidates or steers
    steps = steps or (STEERED_STEPS if steers else STEPS)
    with (
        patch.object(steering, "MOST_CANDIDATES", MOST_CANDIDATES),
        patch.object(cherry_api, "THREADS", 1),  # another order waits while one is paused
        FaultRun(seed, consolidates=consolidates, steers=steers, provider=provider) as machine,
    ):
        broken = ""
        try:
            for _ in range(FIRST_MARK_EVENTS if steers else 0):
                machine.take(a_mark, dice)
            for _ in range(steps):
                machine.take(any_step, dice)
            finish(machine)
            if steers:
                finish_marks(machine, dice)
        except Broken as error:
            broken = str(error)
        except Exception as error:  # an error in the emulation itself is reported like any other
            broken = machine.report([f"{type(error).__name__}: {error}"])
        more = " --steering" if steers else " --consolidation" if consolidates else ""
        more += f" --managed {provider}" if provider else ""
        again = (
            f"seed {seed}; again: python -m tests.faults.run --seeds {seed} --steps {steps}{more} "
            "-v\n"
        )
        return Played(
            seed, broken and again + broken, machine.world.audit.counts, tuple(machine.world.trace)
        )


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run")
    parser.add_argument("--seeds", default="0-9", help="one, or first-last")
    parser.add_argument(
        "--steps", type=int, default=0, help=f"{STEPS} if not given, {STEERED_STEPS} if steered"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell every run")
    parser.add_argument(
        "--consolidation", action="store_true", help="replace nodes by cheaper ones"
    )
    parser.add_argument(
        "--steering", action="store_true", help="replace nodes, and mark those that leave"
    )
    parser.add_argument("--managed", default="", help="provider of managed pools")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    broken, counts, began = list[int](), Counter[str](), time.monotonic()
    playing = partial(
        play,
        steps=given.steps,
        consolidates=given.consolidation,
        steers=given.steering,
        provider=given.managed,
    )
    for played in _all(seeds, playing, given.jobs):
        counts.update(played.counts)
        if played.broken:
            broken.append(played.seed)
            print(
                "--- "
                f"{played.broken if given.verbose else ' | '.join(played.broken.splitlines()[:2])}",
                flush=True,
            )
        elif given.verbose:
            print("\n".join([f"--- seed {played.seed}", *played.trace]))
    seconds = time.monotonic() - began
    print(
        f"seeds {given.seeds}: {len(broken)} of {len(seeds)} broken {broken[:50]} in {seconds:.0f} "
        "s; "
        f"seen: {dict(sorted(counts.items()))}"
    )
    return 1 if broken else 0


def _all(seeds: Iterable[int], playing: Callable[[int], Played], jobs: int) -> Iterator[Played]:
    if jobs == 1:
        yield from map(playing, seeds)
        return
    with ProcessPoolExecutor(
        jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        yield from pool.map(playing, seeds, chunksize=5)


if __name__ == "__main__":
    run(main)
