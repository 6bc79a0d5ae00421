"""Pods that ask for labels which new nodes do not promise."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import NodeTerm, Requirement
from tests.builders import cluster, growth, node, verdict
from tests.unit.plan.test_cce_pools import OS, UNPROMISED, _new

# -- labels that new nodes do not promise


def _asking(operator: str, *values: str, also: Requirement | None = None) -> NodeTerm:
    return NodeTerm(tuple(each for each in (Requirement(OS, operator, values), also) if each))


@pytest.mark.parametrize(
    "asks",
    [
        {"node_selector": {OS: "Linux"}},
        {"required_affinity": (_asking("In", "Linux"),)},
        {"required_affinity": (_asking("Exists"),)},
        {"required_affinity": (_asking("NotIn", "Windows"),)},
        {"required_affinity": (_asking("DoesNotExist"),)},
    ],
)
@pytest.mark.parametrize("source", ["provider", "node"])
def test_CCE_A1_2_pod_with_a_label_no_new_node_promises_buys_nothing(
    asks: dict[str, Any], source: str
) -> None:
    build = cluster()
    if source == "node":
        build.node("g-0", "2", group="g", labels={OS: "Linux"}).running("g-0", 1, "2")
    build.group("g", template=node("t", "2", labels={OS: "Linux"}), options=UNPROMISED)
    plan = build.pending(1, "1", **asks).plan()
    assert _new(plan) == {}
    assert [reason.code for reason in verdict(plan).reasons["g"]] == [ReasonCode.NODE_AFFINITY]


@pytest.mark.parametrize(
    "asks",
    [
        {},
        {"node_selector": {"team": "red"}},
        {
            "required_affinity": (
                _asking("In", "Linux"),
                NodeTerm((Requirement("team", "In", ("red",)),)),
            )
        },
    ],
)
def test_CCE_A1_2_pod_with_alternatives_to_an_unpromised_label_is_served(
    asks: dict[str, Any],
) -> None:
    build = cluster().group(
        "g", template=node("t", "2", labels={OS: "Linux", "team": "red"}), options=UNPROMISED
    )
    assert _new(build.pending(1, "1", **asks).plan()) == {"g": 1}


def test_CCE_A1_2_pod_with_an_unpromised_label_uses_an_existing_node_with_it() -> None:
    build = cluster().node("g-0", "2", group="g", labels={OS: "Linux"})
    build.group("g", template=node("t", "2", labels={OS: "Linux"}), options=UNPROMISED)
    plan = build.pending(1, "2", node_selector={OS: "Linux"}).plan()
    assert (plan.fits_existing, _new(plan)) == (("default/p-00000",), {})


def test_CCE_A1_2_pod_with_an_unpromised_label_takes_no_room_on_new_nodes() -> None:
    build = cluster().group("g", template=node("t", "2", labels={OS: "Linux"}), options=UNPROMISED)
    build.pending(1, "2", node_selector={OS: "Linux"}, name="asks").pending(
        1, "2", name="plain", owner="plain"
    )
    plan = build.plan()
    assert growth(plan) == {"g": (1, 1)}
    assert plan.scale_ups[0].pods == ("default/plain-00001",)


def test_CCE_A1_2_daemonset_with_an_unpromised_label_counts_on_new_nodes() -> None:
    build = cluster().group("g", template=node("t", "2", labels={OS: "Linux"}), options=UNPROMISED)
    build.daemonset("agent", "500m", node_selector={OS: "Linux"})
    assert _new(build.pending(2, "1").plan()) == {"g": 2}
