"""Memory of pod classes: what is kept of a pod's bytes, and where reading stops."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.model.errors import MemoryExceeded
from tests.benchmarks.hostile_memory import hostile_pod

PODS = 12


def page(pods: list[dict[str, Any]]) -> bytes:
    return json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}
    ).encode()


def folded(body: bytes) -> tuple[SnapshotBuilder, int]:
    """Return a builder with the pods of a page, and the bytes that it keeps."""
    tracemalloc.start()
    try:
        builder = SnapshotBuilder()
        before = tracemalloc.get_traced_memory()[0]
        builder.add_page(body, "/api/v1/pods", "Pod")
        return builder, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_bytes_of_a_pod_that_its_class_does_not_need_are_not_kept() -> None:
    """An environment of 1 MB in each pod, different in all."""
    pods = [hostile_pod(at) for at in range(PODS)]
    for at, pod in enumerate(pods):
        pod["spec"] = {
            "containers": [
                {"name": "c", "env": [{"name": "e", "value": f"{at}" + "x" * 1_000_000}]}
            ]
        }
    body = page(pods)
    builder, retained = folded(body)
    assert len(builder.objects.pods) == PODS
    assert retained < len(body) / 10


def test_estimate_of_the_memory_of_classes_is_not_too_low() -> None:
    builder, retained = folded(page([hostile_pod(at) for at in range(PODS)]))
    assert len(builder.objects.table.classes) == PODS
    assert 0.8 * retained < builder.objects.table.memory < 2 * retained


def test_reading_stops_while_classes_grow() -> None:
    """A page of these pods takes ten times its bytes, so to look at the memory once
    a page would be too late."""
    builder = SnapshotBuilder()
    builder.objects.table.check = refuse
    with pytest.raises(MemoryExceeded):
        builder.add_page(page([hostile_pod(at) for at in range(PODS)]), "/api/v1/pods", "Pod")
    assert 0 < builder.objects.table.size < PODS
    assert builder.objects.table.largest_namespace == "tenant"


def refuse() -> None:
    raise MemoryExceeded("too much")
