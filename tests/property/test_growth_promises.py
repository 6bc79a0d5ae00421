"""Whatever the cluster: what a plan promises, the scheduler of infra/emulators can do, and no node is bought for
nothing.

`python -m tests.property.checker --seeds 0-500 -v` is the same by hand. A failure names its seed.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.property.checker import Failure, judged
from tests.property.clusters import draw_cluster, make, write
from tests.property.plan_check import EMPTY, QUEUE, SPARE

PARTS, EACH, SHRINKABLE, LARGE = 4, 550, 200, 200
LONG_RUN, CHUNK = 50_000, 500
SEED = 20_261_121
# Clusters of which plans of former releases refused a pod that one more node would have taken, or bought a node that
# no pod needs, or missed a promised pod in the queue's order; and clusters that are too unhealthy to grow.
ONCE_WRONG = (
    20_262_378,
    100_625,
    101_273,
    102_175,
    102_220,
    106_064,
    106_155,
    106_263,
    107_392,
    108_430,
    108_911,
    109_727,
    117_634,
    118_067,
    118_402,
    118_575,
    122_617,
    124_865,
    126_605,
    130_075,
    130_373,
    130_653,
    133_167,
    134_693,
    135_419,
    136_618,
    138_275,
    139_805,
    140_096,
    143_607,
    145_149,
    145_165,
    146_336,
    149_094,
    100_485,
    313_688,
    320_523,
    322_984,
    612_587,
)


def told(failures: Sequence[Failure]) -> str:
    return "\n".join(map(str, failures))


@pytest.mark.parametrize("part", range(PARTS))
def test_a_plan_keeps_its_promises(part: int) -> None:
    """Seeds in a row, the same in every run: what Hypothesis draws, derandomized or not, depends on the constants of
    all modules that are loaded."""
    seeds = range(SEED + part * EACH, SEED + (part + 1) * EACH)
    found = {seed: judged(make(seed), reorder=seed % 5 == 0) for seed in seeds}
    assert not any(found.values()), told([each for failures in found.values() for each in failures])


def test_no_pod_is_refused_and_no_node_bought_for_nothing_where_it_once_was() -> None:
    failures = [failure for seed in ONCE_WRONG for failure in judged(make(seed))]
    assert not failures, told(failures)


def test_large_plans_keep_their_promises_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large cluster takes another way through settle.py, and small ones can be sent that way. Only small plans try
    everybody once more to find a needless node, or in the queue's order."""
    monkeypatch.setattr("chalicelib.plan.scale_up.final_placement._EXACT", 0)
    failures = [failure for seed in range(SEED, SEED + LARGE) for failure in judged(make(seed))]
    assert not [failure for failure in failures if failure.kind not in {EMPTY, SPARE, QUEUE}], told(failures)


def _keeps_its_promises(draw: random.Random) -> None:
    cluster = draw_cluster(draw)
    failures = judged(cluster)
    if failures:
        folder = Path(tempfile.gettempdir()) / "outscaler-property"  # the last one written is the smallest
        command = " ".join(write(cluster, folder))
        pytest.fail(f"{told(failures)}\n{command}\nOUTSCALER_SHRINK=1 makes it smaller, in some minutes")


def test_a_plan_keeps_its_promises_in_clusters_that_can_be_made_smaller() -> None:
    """Without OUTSCALER_SHRINK the clusters are those of the first seeds, whose plans the first test judges: here only
    that they are the same. The first one is judged in full."""
    if not os.environ.get("OUTSCALER_SHRINK"):
        for seed in range(SEED, SEED + SHRINKABLE):
            assert msgspec.structs.replace(draw_cluster(random.Random(seed)), seed=seed) == make(seed)
        _keeps_its_promises(random.Random(SEED))
        return
    settings(
        max_examples=SHRINKABLE,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )(given(draw=st.randoms(use_true_random=False))(_keeps_its_promises))()


def _chunk(start: int) -> list[Failure]:
    return [failure for seed in range(start, start + CHUNK) for failure in judged(make(seed), reorder=seed % 5 == 0)]


@pytest.mark.slow
def test_fifty_thousand_plans_keep_their_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """From the seed OUTSCALER_SEED on; the closing line goes into the notes of a release."""
    first = int(os.environ.get("OUTSCALER_SEED", SEED))
    with ProcessPoolExecutor() as workers:
        chunks = workers.map(_chunk, range(first, first + LONG_RUN, CHUNK))
        failures = [failure for found in chunks for failure in found]
    kinds = Counter(kind for kind, _ in {(failure.kind, failure.seed) for failure in failures})
    with capsys.disabled():
        print(f"\nOUTSCALER_SEED={first}: {LONG_RUN} clusters, of which broke a promise: {dict(kinds) or 'none'}")
    assert not failures, told(failures[:50])
