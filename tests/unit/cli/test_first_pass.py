"""Waiting for the next pass of a cluster, on virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.cli.first_pass import LONGEST, MOST_LINES, FirstPass, PassWatch, report
from infra.emulators.local_world import LocalWorld

POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: shadow
  kubernetes: {kubeconfigSecret: outscaler/shop/kubeconfig}
  providers: {clusterapi: {}}
"""


@pytest.fixture
def world() -> Iterator[LocalWorld]:
    with LocalWorld(quick=True) as made:
        made.apply_policy(POLICY)
        yield made


def _first(world: LocalWorld) -> FirstPass:
    watch = PassWatch(world.store, ("shop",), world.clock, world.step)
    [first] = watch.passes()
    return first


def test_wait_ends_with_the_first_pass_and_says_its_seconds(world: LocalWorld) -> None:
    first = _first(world)
    assert first.succeeded
    assert first.seconds is not None
    assert 0.0 < first.seconds <= 64.0
    assert first.line() == f"first pass of shop after {first.seconds:.0f} s"


def test_wait_is_for_the_next_pass_and_not_for_an_earlier_one(world: LocalWorld) -> None:
    world.step(130)
    again = [_first(world) for _ in range(3)]
    assert all(first.succeeded for first in again)
    world.scheduled = False
    world.step(60)
    assert _first(world).seconds is None


def test_wait_ends_where_no_pass_starts_and_names_the_page(world: LocalWorld) -> None:
    world.scheduled = False
    began = world.clock()
    first = _first(world)
    assert LONGEST <= world.clock() - began < LONGEST + 5.0
    assert not first.succeeded
    assert first.line().startswith("no pass of shop within 150 s: https://")
    assert first.line().endswith("docs/runbook.md#missing-passes")


def test_pass_that_fails_is_a_first_pass_with_its_reason(world: LocalWorld) -> None:
    world.put_secret(world.kubeconfig_secret, "no kubeconfig")
    first = _first(world)
    assert not first.succeeded
    assert first.seconds is not None
    assert " failed: " in first.line()
    world.put_secret(world.kubeconfig_secret, world.server.kubeconfig())
    world.restart()
    assert _first(world).succeeded


def test_many_clusters_have_a_summary_and_lines_of_those_without_a_decision() -> None:
    good = [FirstPass(f"c{number}", float(number)) for number in range(40)]
    bad = [FirstPass(f"z{number}", None) for number in range(MOST_LINES + 3)]
    assert report(good) == ["first pass of 40 clusters after 39 s"]
    lines = report([*good, *bad])
    assert lines[0] == "first pass of 40 clusters after 39 s"
    assert lines[1:-1] == [item.line() for item in bad[:MOST_LINES]]
    assert lines[-1] == "and 3 more; outscaler get lists them"
    assert report(good[:2]) == [item.line() for item in good[:2]]
