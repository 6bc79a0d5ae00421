"""Benchmarks depend on how busy the machine is: `make bench` and `make test-slow` run
them, `make test` does not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_UNTIMED = {
    "test_call_paths",
    "test_consolidation_afterwards",
    "test_spot_trace",
    "test_warm_share",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every benchmark as slow that measures time or memory."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.stem not in _UNTIMED:
            item.add_marker(pytest.mark.slow)
