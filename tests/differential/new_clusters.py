"""Clusters without recorded upstream results: three replays of its rules stand for three runs.

python -m tests.differential.new_clusters --seeds 500-599     prints what is worse than
                                                              all three, and the count
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.differential.compare import (
    LEFT,
    NOW,
    Figure,
    as_good,
    figure,
    generator,
    growing,
    left_of,
    seeds_of,
)
from tests.differential.pod_order import PodOrderOutcome, replayed
from tests.property.snapshot_reader import read

_RUNS = 3


def answers(seed: int, make: Any) -> Iterator[tuple[str, str]]:
    """For each result of upstream: a word, and the figures behind it."""
    lists, manifest = make(seed)
    snapshot = read(lists, manifest, NOW)
    left = left_of(growing(snapshot, ""))
    runs = [replayed(lists, manifest, random.Random(seed * 7919 + run)) for run in range(_RUNS)]
    lefts = [found[LEFT].left for found in runs]
    yield _word(left > max(lefts), left < min(lefts)), f"{seed} {LEFT}: {left}; upstream {lefts}"
    for entry in manifest["nodeGroups"]:
        theirs = [found[entry["id"]] for found in runs]
        options = [Figure(each.nodes, each.pods) for each in theirs if each.pods]
        if options:
            ours = figure(growing(snapshot, entry["id"]), left)
            word = _word(
                not any(as_good(ours, each) for each in options),
                all(as_good(ours, each) and ours != each for each in options),
            )
            if word == "worse" and _rest(ours, left) <= max(map(_unplaced, theirs)):
                word = "fewer by new nodes, no more left in the end"
            yield word, f"{seed} {entry['id']}: {ours} of {left}; upstream {theirs}"


def _word(worse: bool, better: bool) -> str:
    return "worse" if worse else "better" if better else "as good"


def _rest(ours: Figure, left: int) -> int:
    return left - ours.pods


def _unplaced(theirs: PodOrderOutcome) -> int:
    return theirs.left - theirs.pods


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential.new_clusters",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="500-599", help="N or FIRST-LAST")
    make, words = generator().make, Counter[str]()
    for seed in seeds_of(parser.parse_args(arguments).seeds):
        for word, detail in answers(seed, make):
            words[word] += 1
            if word not in {"as good", "better"}:
                print(f"{word}: {detail}", flush=True)
    print(f"{sum(words.values())} answers", dict(words))


if __name__ == "__main__":
    main()
