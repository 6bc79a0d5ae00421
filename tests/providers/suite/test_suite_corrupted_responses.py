"""Whatever one object of a vendor's answer contains, the provider answers, and other groups
are as without the object.

Runs eight seeds for each kind of object, `make test-slow` twenty, OUTSCALER_CORRUPTED_SEEDS=500
500.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.model.node import Node
from chalicelib.providers.kit.base import Observation
from infra.emulators.vendor_common.server import unchanged
from tests.amounts import examples
from tests.providers.suite.conftest import BENCHES
from tests.providers.suite.corrupted_responses import KINDS, Spoiler, planned, problems

_SEEDS = int(os.environ.get("OUTSCALER_CORRUPTED_SEEDS", examples(8, 20)))
_LONGEST = 20.0  # seconds of CPU time for one observation and its plan
_NAMES, _SIZES, _MOST, _VICTIM = ("alpha", "bravo", "carol"), (3, 2, 1), (10, 8, 9), 1
_TYPES = {
    "alicloud": ("ecs.g6.large", "ecs.g7.xlarge", "ecs.g6.xlarge"),
    "cherryservers": ("e3_1240v3", "e5_1620v4", "cloud_vps_4"),
    "exoscale": ("standard.small", "standard.medium", "standard.large"),
    "huaweicloud": ("c7.large.2", "c7.xlarge.2", "c7.2xlarge.2"),
    "clusterapi": ("", "", ""),
}


@dataclass
class SuiteCorruptedFixture:
    """Three groups of one provider, and their observation without a corrupted object."""

    bench: Any
    ids: list[str]
    nodes: tuple[Node, ...]
    good: Observation

    @property
    def victim(self) -> str:
        """The group whose objects are corrupted."""
        return self.ids[_VICTIM]

    @property
    def marks(self) -> list[str]:
        """Texts, one of which each object of the victim contains."""
        kind, name = _TYPES[self.bench.name][_VICTIM], _NAMES[_VICTIM]
        marks = {f'"{name}', self.victim.partition("/")[0]} - {"MachineDeployment"}
        if kind:
            marks.add(
                self.bench.zone.kind(kind).id if self.bench.name == "exoscale" else f'"{kind}"'
            )
        return sorted(marks)

    def edit(self, spoiler: Any) -> None:
        """Sends every answer through this edit."""
        (self.bench.line if self.bench.name == "clusterapi" else self.bench.server).edit = spoiler

    def observe(self) -> Observation:
        """Observes with a new provider, as a reconcile pass does."""
        seen: Observation = self.bench.provider().observe(self.nodes)
        return seen


@pytest.fixture(scope="module", params=sorted(KINDS))
def scene(request: pytest.FixtureRequest) -> Iterator[SuiteCorruptedFixture]:
    module, made, how = BENCHES[request.param]
    with getattr(importlib.import_module(f"tests.providers.{module}"), made)(**how) as bench:
        ids = [
            bench.add_group(name, size=size, most=most, instance_type=kind)
            for name, size, most, kind in zip(
                _NAMES, _SIZES, _MOST, _TYPES[request.param], strict=True
            )
        ]
        if bench.name == "cherryservers":
            bench.shared_cache.get = lambda key: None  # every observation is also planned
        nodes = bench.nodes()
        yield SuiteCorruptedFixture(bench, ids, nodes, bench.provider().observe(nodes))


def _try(scene: SuiteCorruptedFixture, kind: str, seed: int) -> int:
    """Runs one seed; returns how many answers had the object. Raises AssertionError for
    errors in the observation."""
    spoiler = Spoiler(
        KINDS[scene.bench.name][kind], f"{scene.bench.name} {kind} {seed}", scene.marks
    )
    scene.edit(spoiler)
    began, place = time.process_time(), f"{scene.bench.name} {kind}, seed {seed}"
    found, seen = [], None
    try:
        seen = scene.observe()
    except OutscalerError as error:
        # A list with an object that may belong to any group blocks all of them.
        found = [str(error)] if spoiler.kind.owned(spoiler.made) else []
    finally:
        scene.edit(unchanged)
    if seen is not None:
        others = set(planned(seen, scene.nodes, scene.bench.now())) - {scene.victim}
        found = [
            *problems(scene.good, seen, scene.victim, spoiler),
            *(f"{each} is changed" for each in others),
        ]
    assert not found, f"{place}: {found}"
    assert time.process_time() - began < _LONGEST, place
    return spoiler.met


def test_provider_uncorrupted_observation_plans_nothing(scene: SuiteCorruptedFixture) -> None:
    assert [
        (each.target, len(each.instances), each.error)
        for each in sorted(scene.good.groups, key=lambda each: scene.ids.index(each.id))
    ] == [(size, size, "") for size in _SIZES]
    assert not planned(scene.good, scene.nodes, scene.bench.now())


@pytest.mark.more
def test_provider_corrupted_object_fails_no_pass_and_changes_no_other_group(
    scene: SuiteCorruptedFixture,
) -> None:
    for kind in KINDS[scene.bench.name]:
        assert all(_try(scene, kind, seed) for seed in range(_SEEDS)), (
            f"no answer has the {kind} of the group"
        )
