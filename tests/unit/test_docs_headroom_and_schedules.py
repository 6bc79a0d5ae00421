"""The worked headroom and schedule examples of docs/reference are planned, and the
limits equal the code's.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.errors import InputErrors
from chalicelib.model.memory import Memory
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan import plan_builder
from chalicelib.plan.demand.headroom import headroom_demand
from chalicelib.plan.demand.scaling_rules import sources
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.scale_up.rule_purchases import LATE
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy import horizontal_node_autoscaler
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.providers.huaweicloud import api
from chalicelib.schedules import overlap
from tests.builders import NOW, cluster, growth
from tests.unit.plan.headroom_builder import GIB, SPARE, busy, gone, plan, said
from tests.unit.test_docs import HEADROOM, ROOT, SCHEDULES

LIMITS = (ROOT / "docs" / "limits.md").read_text("utf-8")
TEXT = " ".join(word for page in (HEADROOM, SCHEDULES) for word in page.read_text("utf-8").split())


# -- headroom


def test_docs_headroom_example_of_ten_percent_of_fourteen_cores() -> None:
    assert (
        "With 14 cores and 56 GiB requested, `percent: 10` is two virtual pods of 0.7 cores "
        "and 2.8 GiB."
    ) in TEXT
    build = cluster().node("g-0", "16", "64Gi", group="g").running("g-0", 14, "1", "4Gi").group("g")
    policy = Policy(name="test", headroom=(Headroom("tenth", percent=10),))
    world, virtual = headroom_demand(build_cluster_state(build.snapshot(), policy, Memory(), NOW))
    [pods] = virtual.pods
    requests = world.snapshot.classes[pods.cls].requests
    assert (pods.count, requests[CPU]) == (2, 700)
    assert requests[MEMORY] == pytest.approx(2.8 * GIB, abs=1)


@pytest.mark.parametrize(("pods", "removed"), [(3, ["g-2"]), (4, [])])
def test_docs_headroom_for_three_pods_allows_a_removal_and_for_four_blocks_it(
    pods: int, removed: list[str]
) -> None:
    assert "Two nodes have capacity for 8, so the third is removed. With 4 pods it stays." in TEXT
    assert gone(plan(busy(2, 2, 1), msgspec.structs.replace(SPARE, pods=pods))) == removed


@pytest.mark.parametrize(("coming", "bought"), [(1, {}), (3, {}), (4, {"g": (1, 0)})])
def test_docs_headroom_pods_start_at_once_and_the_fourth_buys_a_node(
    coming: int, bought: dict[str, tuple[int, int]]
) -> None:
    assert "With three new pods it is 12, and still nothing. The fourth causes a purchase." in TEXT
    found = plan(busy(2, 2, 1).pending(coming, "1", "1Gi"), msgspec.structs.replace(SPARE, pods=4))
    assert len(found.fits_existing) == coming
    assert growth(found) == bought
    assert said(found) == (4, 7 - coming if coming > 3 else 4, max(0, coming - 3))


# -- schedules


@pytest.mark.parametrize(("most", "removed"), [(None, []), (2, ["g-2"])])
def test_docs_schedule_with_a_lower_maximum_shrinks_a_group_below_its_minimum(
    most: int | None, removed: list[str]
) -> None:
    assert "Thus `max: 2` at night allows a group with a minimum of 3 to shrink to 2." in TEXT
    night = (Schedule("night", "0 0 * * *", 86400.0, max=most),) if most is not None else ()
    policy = Policy(name="test", mode=Mode.ACTIVE, schedules=night)
    build = busy(2, 2, 0, min=3)
    found, _ = plan_cluster(build.snapshot(), policy, Memory(), NOW, 0, assume_unneeded_for=3600.0)
    assert gone(found) == removed


# -- limits


@pytest.mark.parametrize(
    "words",
    [
        f"| rules of one pool | {sources.MOST_RULES}, of which one",
        (
            "| targets and rules of a HorizontalNodeAutoscaler | "
            f"{horizontal_node_autoscaler.MOST_TARGETS} "
            f"and {horizontal_node_autoscaler.MOST_RULES};"
        ),
        f"kept for {LATE / 60:.0f} minutes, or",
        f"and {overlap._STEPS:,} openings**",
        f"name the first {'ten' if plan_builder.MOST_WARNINGS == 10 else '?'} nodes or pods each",
        f"| reported targets of rules that do not exist | {sources.MOST_UNKNOWN} in a pass",
        f"| total of a pool of Huawei Cloud CCE | {api.MOST:,};",
    ],
)
def test_docs_rules_and_schedules_limits_equal_the_code(words: str) -> None:
    assert words in LIMITS


def test_docs_lists_longer_than_the_documented_limits_are_refused() -> None:
    assert "| rules, schedules, entries of headroom in a policy | 500, 50, 50 |" in LIMITS
    head = (
        "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n  mode: "
        "shadow\n"
        "  kubernetes: {kubeconfigSecret: k}\n  providers:\n    clusterapi: {clusterName: prod}\n"
    )
    lists = (
        ("rules", '{name: n%d, groups: [g%d], cron: "0 1 * * *", add: 1}', 500),
        ("schedules", '{name: n%d, groups: [g%d], cron: "0 1 * * *", duration: 1h, max: 1}', 50),
        ("headroom", "{name: n%d, groups: [g%d], percent: 10}", 50),
    )
    for key, entry, most in lists:
        entries = [f"    - {entry % (at, at)}\n" for at in range(most + 1)]
        load(f"{head}  {key}:\n{''.join(entries[:-1])}", place="here")
        with pytest.raises(InputErrors):
            load(f"{head}  {key}:\n{''.join(entries)}", place="here")
