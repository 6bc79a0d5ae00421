"""Placements of pods are shown in a few rows, however many there are."""

from __future__ import annotations

from chalicelib.cli import plan_document, plan_output
from chalicelib.cli.output import Table
from chalicelib.model.plan import Health, NodeVerdict, Plan, PodPlacement, ScaleUp
from chalicelib.model.reason import Reason, ReasonCode

TIMES = {"decode": 0.0, "plan": 0.0}


def plan(*promises: PodPlacement, **more: object) -> Plan:
    return Plan(
        "plan-1",
        "shop",
        1_800_000_000.0,
        promises=promises,
        health=Health(registered=3, ready=3),
        **more,  # type: ignore[arg-type]
    )


def pods(count: int, name: str = "p") -> tuple[str, ...]:
    return tuple(f"shop/{name}-{at:05d}" for at in range(count))


def tables(made: Plan) -> dict[str, Table]:
    return {
        each.title: each for each in plan_output.as_blocks(made, TIMES) if isinstance(each, Table)
    }


def test_placements_name_a_node_or_a_number_within_a_group() -> None:
    made = plan(
        PodPlacement(("shop/a",), node="n-1"),
        PodPlacement(("shop/b", "shop/c"), group="g", number=2),
    )
    assert plan_document.as_document(made, TIMES)["promises"] == [
        {"pods": ["shop/a"], "node": "n-1", "promised": True},
        {"pods": ["shop/b", "shop/c"], "group": "g", "number": 2, "promised": True},
    ]


def test_placements_on_equally_full_new_nodes_share_a_row() -> None:
    names = pods(25)
    full = [
        PodPlacement(names[at * 10 : at * 10 + 10], group="g", number=at + 1) for at in range(2)
    ]
    made = plan(
        *full,
        PodPlacement(names[20:], group="g", number=3),
        PodPlacement(("shop/x",), group="a", number=1),
    )
    assert [row[:3] for row in plan_output.rows_of_new(made)] == [
        ("a", "1", "1"),
        ("g", "1 to 2", "10"),
        ("g", "3", "5"),
    ]


def test_placements_of_several_pod_classes_on_one_new_node_are_summed() -> None:
    made = plan(
        PodPlacement(pods(3, "a"), group="g", number=1),
        PodPlacement(pods(4, "b"), group="g", number=1),
    )
    assert plan_output.rows_of_new(made)[0][:3] == ("g", "1", "7")


def test_placements_of_twenty_thousand_pods_stay_readable() -> None:
    names = pods(20_000)
    new = [
        PodPlacement(names[at : at + 1 + at % 7], group=f"g-{at % 3}", number=at // 3 + 1)
        for at in range(6000)
    ]
    there = [PodPlacement((name,), node=f"n-{at:05d}") for at, name in enumerate(names[10_000:])]
    made = plan(
        *new,
        *there,
        scale_ups=tuple(ScaleUp(f"g-{at}", "x", 0, 2000, 3000) for at in range(3)),
        fits_existing=names[10_000:],
        unremovable=tuple(
            NodeVerdict(f"n-{at:05d}", Reason.of(ReasonCode.NOT_AUTOSCALED)) for at in range(5000)
        ),
    )
    text = plan_output.as_blocks(made, TIMES)
    assert sum(len(block.rows) for block in text if isinstance(block, Table)) < 60
    rows = tables(made)["Placement on new nodes"].rows
    assert {row[0] for row in rows} == {"g-0", "g-1", "g-2"}
    assert rows[-1][1].endswith("to 2000")
    assert tables(made)["Blocked removals"].rows == (
        (
            "n-00000, n-00001, n-00002 and 4997 more",
            "NotAutoscaled",
            "node is in no autoscaled group",
        ),
    )


def test_placements_list_fullest_existing_nodes_first_and_count_every_pod() -> None:
    made = plan(
        PodPlacement(pods(2), node="n-1"),
        PodPlacement(pods(5, "q"), node="n-2"),
        fits_existing=(*pods(2), *pods(5, "q"), "shop/nowhere"),
    )
    assert [row[:2] for row in plan_output.rows_of_existing(made)] == [
        ("n-2", "5"),
        ("n-1", "2"),
        ("-", "1"),
    ]


def test_placements_show_notes_and_assumptions() -> None:
    made = plan(
        notes=(Reason.of(ReasonCode.EXPANDER_SKIPPED, expander="price", detail="no prices"),)
    )
    document = plan_document.as_document(made, TIMES, ("node n-1 is gone",))
    assert document["notes"] == [
        {"code": "ExpanderSkipped", "message": "expander price was passed over (no prices)"}
    ]
    assert document["assumed"] == ["node n-1 is gone"]
    assert tables(made)["Notes"].rows == (
        ("ExpanderSkipped", "expander price was passed over (no prices)"),
    )
