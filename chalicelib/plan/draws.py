"""Reproducible draws for rehearsals of the scheduler.

The planner has no source of chance of its own, and the same snapshot must give the same plan under every version of
Python. So this is the generator SplitMix64 (https://prng.di.unimi.it/splitmix64.c), seeded by the caller.
"""

from __future__ import annotations

_MASK = 2**64 - 1


class Draws:
    """Numbers that depend on the seed alone."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def random(self) -> float:
        """Uniform in [0, 1), with 53 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return float(((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53)

    def below(self, count: int) -> int:
        """One of 0 .. count - 1; count: at least 1."""
        return int(self.random() * count)

    def shuffled(self, count: int) -> list[int]:
        """0 .. count - 1 in an order by lot."""
        numbers = list(range(count))
        for at in range(count - 1, 0, -1):
            other = self.below(at + 1)
            numbers[at], numbers[other] = numbers[other], numbers[at]
        return numbers
