"""A pass of the small function ends before its memory does, whatever pods a tenant creates."""

from __future__ import annotations

import pytest

from tests.benchmarks.hostile_memory import grown

SIZE = 512


@pytest.mark.parametrize("mebibytes", [51, 200])
def test_pass_stops_before_its_memory_ends(mebibytes: int) -> None:
    made = grown(mebibytes, SIZE)
    print(f"\n{mebibytes} MiB of pods: peak {made['peak']:.0f} MB of {SIZE}; {made['stopped']}")
    assert "the pods of namespace tenant take the most" in made["stopped"]
    assert made["peak"] < SIZE
