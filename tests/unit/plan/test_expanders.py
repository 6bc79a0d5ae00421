"""The chain of expanders: each keeps the best options it receives, and one
option is chosen at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import pytest

from chalicelib.model.reason import ReasonCode
from chalicelib.plan.scale_up.expanders import ExpanderContext, Option, choose_option
from tests.builders import amounts, node

ANYWHERE = ExpanderContext()


def _option(
    group: str,
    cpu: str = "1",
    *,
    nodes: int = 1,
    pods: int = 1,
    template: tuple[str, str] = ("4", "4Gi"),
    memory: str = "1Gi",
    preference: float = 0.0,
) -> Option:
    """New nodes of a template for that many pods, with these total cpu and memory requests."""
    return Option(
        group, nodes, {0: pods}, node(group, *template), amounts(cpu=cpu, memory=memory), preference
    )


def chosen(
    options: Sequence[Option], *chain: str, situation: ExpanderContext = ANYWHERE
) -> str | None:
    """The group of the chosen option."""
    best, _ = choose_option(options, chain, situation)
    return best.group if best else None


def winners(options: Sequence[Option], *chain: str) -> set[str | None]:
    """Groups that can win: `random` at the end of the chain chooses every
    equal option for some seed."""
    return {
        chosen(options, *chain, "random", situation=ExpanderContext(seed=seed))
        for seed in range(64)
    }


LOOSE, TIGHT, TIGHT_TOO = _option("a", "1"), _option("b", "3"), _option("c", "3")

X1_BALANCED = _option("balanced", "500m", memory="1000Mi", template=("8", "16000Mi"))
X1_HIGHMEM = _option("highmem", "500m", memory="1000Mi", template=("8", "32000Mi"))
X1_LOWCPU = _option("lowcpu", "500m", memory="1000Mi", template=("4", "16000Mi"))
X2_IDLE = Option("idle", 1, {}, node("idle", "4", "4Gi"), {})


@pytest.mark.parametrize(
    ("options", "expander", "kept"),
    [
        pytest.param([X1_BALANCED, X1_HIGHMEM], "least-waste", {"balanced"}, id="X1"),
        pytest.param(
            [X1_BALANCED, X1_HIGHMEM, X1_LOWCPU], "least-waste", {"lowcpu"}, id="X1-three"
        ),
        pytest.param([X2_IDLE], "least-waste", {"idle"}, id="X2"),
        pytest.param(
            [_option(f"g{at}", nodes=n) for at, n in enumerate([6, 2, 2])],
            "least-nodes",
            {"g1", "g2"},
            id="X3",
        ),
        pytest.param(
            [_option(f"g{at}", nodes=n) for at, n in enumerate([23, 0, 5, 8, 5, 5, 22])],
            "least-nodes",
            {"g2", "g4", "g5"},
            id="X3-zero",
        ),
        pytest.param([_option("g", nodes=0)], "least-nodes", {None}, id="X3-only-zero"),
        pytest.param(
            [_option(f"g{at}", pods=n) for at, n in enumerate([3, 5, 5])],
            "most-pods",
            {"g1", "g2"},
            id="X4",
        ),
    ],
)
def test_expander_keeps_the_best_option_and_all_equal_ones(
    options: list[Option], expander: str, kept: set[str | None]
) -> None:
    assert winners(options, expander) == kept


FEW_NODES_MUCH_WASTE = _option("few", nodes=1)
MANY_NODES_LITTLE_WASTE = _option("many", "8", nodes=2, memory="8Gi")
FEW_NODES_LESS_WASTE = _option("less", "2", nodes=1)


@pytest.mark.parametrize(
    ("options", "chain", "group"),
    [
        pytest.param(
            [FEW_NODES_MUCH_WASTE, MANY_NODES_LITTLE_WASTE],
            ("least-nodes", "least-waste"),
            "few",
            id="X5-stops",
        ),
        pytest.param(
            [FEW_NODES_MUCH_WASTE, MANY_NODES_LITTLE_WASTE, FEW_NODES_LESS_WASTE],
            ("least-nodes", "least-waste"),
            "less",
            id="X5-goes-on",
        ),
        pytest.param(
            [FEW_NODES_MUCH_WASTE, MANY_NODES_LITTLE_WASTE],
            ("least-waste", "least-nodes"),
            "many",
            id="order",
        ),
    ],
)
def test_next_expander_in_the_chain_decides_among_equal_options(
    options: list[Option], chain: tuple[str, ...], group: str
) -> None:
    for some in permutations(options):
        assert chosen(some, *chain) == group


@pytest.mark.parametrize(
    "chain",
    [
        ("least-waste",),
        ("least-cost",),
        ("most-pods", "least-cost"),
        ("least-cost", "least-waste"),
        ("grpc",),
        (),
    ],
    ids=",".join,
)
def test_least_waste_decides_when_no_other_expander_does(chain: tuple[str, ...]) -> None:
    assert chosen([LOOSE, TIGHT_TOO, TIGHT], *chain) == "b"


def test_next_named_expander_runs_after_least_cost() -> None:
    assert chosen([_option("a", "3"), _option("b", pods=9)], "least-cost", "most-pods") == "b"


def test_unknown_expander_name_is_skipped_and_reported() -> None:
    best, notes = choose_option([LOOSE, TIGHT], ["grpc", "least-waste"], ANYWHERE)
    assert best == TIGHT
    assert [(note.code, note.params["expander"]) for note in notes] == [
        (ReasonCode.EXPANDER_SKIPPED, "grpc")
    ]


def test_empty_option_list_gives_no_choice() -> None:
    for chain in (("priority",), ("random",), ("price", "least-waste"), ("least-cost",)):
        assert chosen([], *chain) is None


def test_equal_options_go_to_the_lowest_group_id_in_any_order() -> None:
    for some in permutations([_option("c"), _option("a"), _option("b")]):
        assert chosen(some, "least-waste") == "a"


def test_soft_preferences_decide_among_equal_options() -> None:
    options = [
        _option("a"),
        _option("b", preference=2.0),
        _option("c", preference=2.0),
        _option("d", preference=1.0),
    ]
    assert chosen(options, "least-waste") == "b"
    assert winners(options, "least-waste") == {"b", "c"}


def test_soft_preferences_do_not_outweigh_the_chain() -> None:
    assert chosen([_option("a", "3"), _option("b", "1", preference=100.0)], "least-waste") == "a"


def test_random_expander_chooses_options_evenly_in_any_order() -> None:
    options = [_option("a"), _option("b", "3"), _option("c", nodes=7)]
    drawn = [
        chosen(options, "random", situation=ExpanderContext(seed=seed)) for seed in range(3000)
    ]
    assert drawn == [
        chosen(options[::-1], "random", situation=ExpanderContext(seed=seed))
        for seed in range(3000)
    ]
    assert all(900 < count < 1100 for count in Counter(drawn).values())
    assert len(set(drawn)) == 3
