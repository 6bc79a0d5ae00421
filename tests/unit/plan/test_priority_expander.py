"""The priority expander with the priority ConfigMap as users write it, and with
priorities in the policy.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.expanders import (
    ExpanderContext,
    Option,
    choose_option,
    keep_highest_priority,
)
from chalicelib.policy.priority_configmap import read
from tests.builders import amounts, node

X6 = (
    "5:\n  - .*t2\\.micro.*\n10:\n  - .*t2\\.large.*\n  - .*t3\\.large.*\n50:\n  - "
    ".*m4\\.4xlarge.*\n"
)
X7 = "5:\n  - .*\n10:\n  - .t2\\.large.*\n"
X8 = "10:\n  - .*t2\\.large.*\n"
NO_MATCH = Reason.of(ReasonCode.PRIORITY_NO_MATCH)


def options(*groups: str) -> list[Option]:
    return [Option(group, 1, {0: 1}, node(group), amounts(cpu="1")) for group in groups]


def kept(world: ExpanderContext, *groups: str) -> tuple[list[str], tuple[Reason, ...]]:
    left, notes = keep_highest_priority(options(*groups), world)
    return [option.group for option in left], notes


def config(text: str) -> ExpanderContext:
    """A cluster with this ConfigMap; the policy has other priorities, which must not apply."""
    return ExpanderContext(
        priorities=read({"priorities": text}), group_priorities={"my-asg.t2.micro": 99}
    )


LARGE, LARGE3, XLARGE, MICRO = (
    "my-asg.t2.large",
    "my-asg.t3.large",
    "my-asg.m4.4xlarge",
    "my-asg.t2.micro",
)


def unmatched(*groups: str) -> tuple[Reason, ...]:
    return tuple(Reason.of(ReasonCode.PRIORITY_NOT_MATCHED, group=group) for group in groups)


@pytest.mark.parametrize(
    ("text", "groups", "left", "notes"),
    [
        pytest.param(X6, (LARGE, XLARGE), [XLARGE], (), id="X6"),
        pytest.param(X6, (LARGE, LARGE3, MICRO), [LARGE, LARGE3], (), id="X6-equal"),
        pytest.param(X7, (LARGE, MICRO), [LARGE], (), id="X7"),
        pytest.param(X8, (LARGE, LARGE3, XLARGE), [LARGE], unmatched(LARGE3, XLARGE), id="X8"),
        pytest.param(X8, (LARGE3, XLARGE), [LARGE3, XLARGE], (NO_MATCH,), id="X9-no-match"),
        pytest.param("{}", (LARGE, MICRO), [LARGE, MICRO], (NO_MATCH,), id="no-rules"),
        pytest.param(
            "-1: [large]\n-2: [micro]", (LARGE, MICRO), [LARGE], (), id="minus-one-can-win"
        ),
        pytest.param(
            "-2: [large]",
            (LARGE, MICRO),
            [LARGE, MICRO],
            (NO_MATCH,),
            id="below-minus-one-never-wins",
        ),
        pytest.param(
            "-2: [micro]\n3: [large]",
            (LARGE, MICRO),
            [LARGE],
            (),
            id="matched-below-minus-one-is-not-unmatched",
        ),
        pytest.param(
            "3: [t2]\n7: [large]", (LARGE, MICRO), [LARGE], (), id="the-highest-of-several-counts"
        ),
        pytest.param(
            "3: ['^large$', '^my-asg.t2.micro$']",
            (LARGE, MICRO),
            [MICRO],
            unmatched(LARGE),
            id="anchored",
        ),
        pytest.param("3: [asg]", (LARGE, MICRO), [LARGE, MICRO], (), id="found-anywhere"),
    ],
)
def test_priority_expander_chooses_the_highest_matching_priority(
    text: str, groups: tuple[str, ...], left: list[str], notes: tuple[Reason, ...]
) -> None:
    assert kept(config(text), *groups) == (left, notes)


def test_edited_priority_configmap_takes_effect_at_once() -> None:
    assert kept(config(X8), LARGE, XLARGE)[0] == [LARGE]
    assert kept(config("10: [m4]"), LARGE, XLARGE)[0] == [XLARGE]


@pytest.mark.parametrize(
    "data",
    [
        {"priorities": ""},
        {},
        {"other": X6},
        {"priorities": "10: ["},
        {"priorities": "high: [a]"},
        {"priorities": "10: ['(']"},
        {"priorities": "10: ['(?=large)']"},
        {"priorities": "- a"},
    ],
    ids=[
        "X9-empty",
        "no-data",
        "no-key",
        "no-yaml",
        "no-number",
        "no-pattern",
        "not-gos",
        "no-mapping",
    ],
)
def test_invalid_priority_configmap_filters_nothing_and_is_reported(data: dict[str, str]) -> None:
    left, notes = kept(
        ExpanderContext(priorities=read(data), group_priorities={MICRO: 99}), LARGE, MICRO
    )
    assert left == [LARGE, MICRO]
    assert [note.code for note in notes] == [ReasonCode.PRIORITY_CONFIG_INVALID]
    assert notes[0].params["detail"]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, [LARGE, MICRO]),
        ({LARGE: 0, MICRO: 0}, [LARGE, MICRO]),
        ({MICRO: 10}, [MICRO]),
        ({LARGE: 5, MICRO: 10}, [MICRO]),
        ({LARGE: -1}, [MICRO]),
        ({"elsewhere": 9}, [LARGE, MICRO]),
    ],
    ids=["X9-absent", "all-zero", "one", "two", "below-the-others", "another-group"],
)
def test_policy_priorities_apply_without_a_configmap(
    given: dict[str, int], left: list[str]
) -> None:
    assert kept(ExpanderContext(group_priorities=given), LARGE, MICRO) == (left, ())


def test_expander_chain_returns_the_notes_of_its_expanders() -> None:
    best, notes = choose_option(options(LARGE, XLARGE), ["priority", "least-waste"], config(X8))
    assert best is not None
    assert (best.group, notes) == (LARGE, unmatched(XLARGE))


def test_priority_pattern_matches_any_name_of_a_group() -> None:
    pool, other = "0f7c2a6e-6d3a-4f0e-9b55-6f1d2c3b4a59", "b2000000-0000-4000-8000-000000000001"
    world = msgspec.structs.replace(
        config("10: ['^prod/web$']\n20: ['^batch$']\n30: ['^9eccd769']"),
        group_aliases={pool: ("prod/web", "web"), other: ("prod/batch", "batch")},
    )
    assert kept(world, pool, other) == ([other], ())
    by_nodepool = msgspec.structs.replace(
        world, group_aliases={**world.group_aliases, pool: ("9eccd769-a282", "web")}
    )
    assert kept(by_nodepool, pool, other) == ([pool], ())
