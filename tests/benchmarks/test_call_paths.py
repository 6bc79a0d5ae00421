"""The way from an operation's message to the vendor's request stays short."""

from __future__ import annotations

from tests.benchmarks.call_paths import OPERATION, to_the_vendor, traced


def test_four_hops_lead_from_the_kind_of_an_operation_to_the_vendor() -> None:
    path = traced(OPERATION, to_the_vendor).path
    begin = next(number for number, place in enumerate(path) if place.endswith(":run_step"))
    assert path[:begin] == ["operations/runner.py:handle"], (
        "the message's handler runs the step itself"
    )
    assert path[begin : begin + 4] == [
        "operations/runner.py:run_step",  # kind -> definition
        "operations/steps/scale_up.py:scale_up",  # definition -> step
        "providers/kit/base.py:change.<locals>.method",  # step -> provider
        "providers/clusterapi/scale_up.py:resize",  # provider -> the vendor's own change
    ]
