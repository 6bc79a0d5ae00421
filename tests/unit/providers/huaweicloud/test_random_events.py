"""Random events between two calls: no other nodes are selected for removal, and nothing is bought twice."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, ProviderError, Throttled, Transient
from chalicelib.providers.huaweicloud.models import Autoscaling
from tests.unit.providers.huaweicloud.fake_api import (
    POOL,
    A,
    FakeCceApi,
    continued,
    growth,
    provider,
    removal,
    shrinkage,
    two,
)

EVENTS = st.lists(
    st.sampled_from(
        [
            "step",
            "more beside",
            "more here",
            "gone beside",
            "gone here",
            "lost",
            "no answer",
            "lag",
            "stuck",
            "busy",
            "twice",
        ]
    ),
    max_size=12,
)
WIDE = Autoscaling(True, 0, 1000)


def disturb(api: FakeCceApi, event: str) -> None:
    """Applies one concurrent change."""
    pool = api.all[POOL]
    here, beside = api.of(POOL), api.of(POOL, "c7-az2")
    deeds: dict[str, Callable[[], object]] = {
        "step": api.step,
        "more beside": lambda: api.scale(POOL, pool.desired + 2, "c7-az2"),
        "more here": lambda: api.scale(POOL, pool.desired + 2, "default"),
        "gone beside": lambda: api.delete_node(beside[0]) if beside else None,
        "gone here": lambda: api.delete_node(here[0]) if here else None,
        "lost": lambda: api.lost.add("scale"),
        "no answer": lambda: api.trouble.setdefault("scale", []).append(Transient("no answer")),
        "lag": lambda: setattr(api, "lag", not api.lag),
        "stuck": lambda: setattr(pool.groups[0], "stock", 0),
        "busy": lambda: api.trouble.setdefault("pool", []).append(Throttled("slowly")),
    }
    lost, trouble = set(api.lost), {key: list(value) for key, value in api.trouble.items()}
    if event in {"more beside", "more here", "gone beside", "gone here"}:
        api.lost, api.trouble = set(), {}
        deeds[event]()
        api.lost, api.trouble = lost, trouble
    elif event != "twice":
        deeds[event]()


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_CCE_18_scale_up_with_random_changes_adds_at_most_the_planned_number(events: list[str]) -> None:
    api = FakeCceApi(two(3, 2, autoscaling=WIDE))
    asked, verb = growth(3, 5), "scale_up"
    bought, waiting = 0, list(events)
    for _ in range(80):
        before = api.all[POOL].groups[0].desired
        twice = bool(waiting) and waiting[0] == "twice"
        outcome = None
        for _again in range(1 + twice):
            try:
                outcome = getattr(provider(api), verb)(asked)
            except (Conflict, Transient, Throttled):
                outcome = None
        bought += api.all[POOL].groups[0].desired - before
        assert bought <= 2
        if isinstance(outcome, Succeeded | Failed):
            break
        if isinstance(outcome, InProgress):
            verb = "scale_up" if outcome.step == "announce" else "poll"
            asked = continued(asked, outcome)
        disturb(api, waiting.pop(0) if waiting else "step")
    else:
        raise AssertionError("not over after 80 calls")
    assert not api.chosen


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.integers(0, 5), st.booleans())
def test_CCE_19_decrease_target_with_random_changes_costs_no_node(events: list[str], goal: int, discard: bool) -> None:
    api = FakeCceApi(two(3, 2, autoscaling=WIDE))
    api.all[POOL].groups[0].stock = 0
    api.scale(POOL, 7, "default")
    asked = shrinkage(5, goal)
    verb = "decrease_target"
    if discard:
        asked, verb = (
            removal(5, f"{A}/placeholder-0", f"{A}/placeholder-1", kind=OperationKind.DELETE_INSTANCES),
            "delete_nodes",
        )
    for event in [*events, *["step"] * 20]:
        try:
            outcome = getattr(provider(api), verb)(asked)
        except ProviderError:
            outcome = None
        if isinstance(outcome, Succeeded | Failed):
            break
        if isinstance(outcome, InProgress):
            verb, asked = "poll", continued(asked, outcome)
        disturb(api, event)
    assert not api.chosen
