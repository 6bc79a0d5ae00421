"""Decoding and folding of pods, as a multiple of a bare msgspec decode of the same
pages into the same types.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable

from chalicelib.cluster.class_table import ClassTable, PodFold
from chalicelib.cluster.snapshot_builder import LISTINGS
from chalicelib.model.pod import Pod
from tests.benchmarks.served_cluster import Pods

COUNT, PAGE, ROUNDS = 20_000, 1_500, 5  # a page has about 8 MB, as those of a pass
MOST_KNOWN, MOST_NEW = 2.6, 3.6


def _pages() -> list[bytes]:
    pods = Pods(500)
    made = sorted(
        (pods.made(at) for at in range(COUNT)), key=lambda each: str(each["metadata"]["name"])
    )
    return [
        json.dumps(
            {"kind": "PodList", "metadata": {}, "items": made[at : at + PAGE]},
            separators=(",", ":"),
        ).encode()
        for at in range(0, COUNT, PAGE)
    ]


def _best(work: Callable[[], object]) -> float:
    """Return microseconds per pod."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) / COUNT * 1e6


def test_folding_pods_costs_a_small_multiple_of_decoding_them() -> None:
    pages, decode, known = _pages(), LISTINGS["Pod"].decode, PodFold(ClassTable())

    def fold(into: PodFold) -> dict[str, Pod]:
        found: dict[str, Pod] = {}
        problems: list[tuple[int, Exception]] = []
        for page in pages:
            into.fold(
                decode(page).items,
                found,
                lambda at, error: problems.append((at, error)),
                resizing=False,
            )
        assert not problems
        return found

    gc.disable()  # as a pass does while it reads (snapshot_builder.collector_paused)
    try:
        assert len(fold(known)) == COUNT
        bare = _best(lambda: [decode(page) and None for page in pages])
        again, new = _best(lambda: fold(known)), _best(lambda: fold(PodFold(ClassTable())))
    finally:
        gc.enable()
    print(
        f"\nbare {bare:.1f} us a pod; with known classes {again / bare:.2f} times that, with new "
        "ones, ten pods each, "
        f"{new / bare:.2f} times"
    )
    assert again < MOST_KNOWN * bare
    assert new < MOST_NEW * bare
