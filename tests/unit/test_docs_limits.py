"""docs/limits.md names every limit on the requests of a pod and a cluster, with its number."""

from __future__ import annotations

from pathlib import Path

from chalicelib.cluster import input_limits

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()


def test_docs_limits_list_every_limit_of_a_pod_and_a_cluster() -> None:
    named = [
        *((cap.what, cap.most) for cap in input_limits.PER_POD),
        *((total.what, total.most) for total in input_limits.PER_CLUSTER),
        ("containers", input_limits.CONTAINERS),
    ]
    assert [what for what, most in named if f"| {what} | {most:,} |" not in PAGE] == []
