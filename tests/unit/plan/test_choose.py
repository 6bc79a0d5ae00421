"""The chain of expanders: each keeps the best of what it is given, and a name nobody here answers to is passed over."""

from __future__ import annotations

import pytest

from chalicelib.plan.choose import choose
from chalicelib.plan.option import Option
from tests.builders import amounts, node


def _option(group: str, cpu: str) -> Option:
    """One new node of 4 cpu for a pod that asks for so much of it."""
    return Option(group, 1, {0: 1}, node(group, "4", "4Gi"), amounts(cpu=cpu, memory="1Gi"))


LOOSE, TIGHT, TIGHT_TOO = _option("a", "1"), _option("b", "3"), _option("c", "3")


@pytest.mark.parametrize("chain", [
    ("least-waste",), ("priority", "least-waste"), ("least-waste", "random"), ("price",), ("most-pods", "random"), (),
], ids=",".join)
def test_what_is_not_here_is_passed_over_and_least_waste_decides_in_the_end(chain: tuple[str, ...]) -> None:
    assert choose([LOOSE, TIGHT_TOO, TIGHT], chain) == TIGHT


def test_no_option_is_no_choice() -> None:
    assert choose([], ("priority",)) is None
