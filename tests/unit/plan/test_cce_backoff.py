"""Backoff after instances could not be created or installed, or did not join in time."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import InstanceError, Pool
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.state.backoff import FLAT, fail, in_backoff
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit import errors
from tests.builders import NOW, ClusterBuilder, cluster, growth, node, verdict
from tests.unit.plan.instances_builder import (
    STOCK,
    anchored,
    asked,
    facts_of,
    repaired,
    seen,
    with_machines,
)

POOL = Pool("p", "pool-a", max=50)
BROKEN = InstanceError("InstallFailed", "Error", "the node could not be installed")
GONE = ("OutOfStock", "QuotaExceeded")


def _after(
    *failures: str, record: Backoff | None = None, now: float = 0.0
) -> tuple[list[float], Backoff]:
    """Minutes of backoff after failures of these classes, each one second after
    the previous backoff ended."""
    lengths = []
    for cls in failures:
        record = fail(record, now, Options(), cls)
        lengths.append((record.until - now) / 60)
        now = record.until + 1
    assert record is not None
    return lengths, record


@pytest.mark.parametrize("cls", GONE)
def test_CCE_A9_1_backoff_lasts_five_ten_twenty_and_at_most_thirty_minutes(cls: str) -> None:
    assert _after(*[cls] * 5)[0] == [5, 10, 20, 30, 30]


@pytest.mark.parametrize("error", [STOCK, InstanceError("QuotaExceeded", "Quota", "enough")])
def test_CCE_A9_1_another_pool_scales_up_in_the_same_pass_until_all_are_backed_off(
    error: InstanceError,
) -> None:
    build = with_machines(anchored(), "a", 1, error=error, template=node("t", "2"), pool=POOL)
    build.group("b", template=node("t", "2"), pool=Pool("q", max=9)).pending(
        2, "1", node_selector={}
    )
    build.nodes[0] = msgspec.structs.replace(build.nodes[0], unschedulable=True)
    known = Memory(groups={"a": asked(1, 60)})
    plan, after = build.decide(known)
    assert growth(plan) == {"b": (1, 2)}
    assert after.groups["a"].backoff is not None
    cooling = {name: GroupMemory(backoff=after.groups["a"].backoff) for name in ("a", "b")}
    nothing = build.plan(Memory(groups=cooling))
    assert growth(nothing) == {}
    assert {reasons[0].code for reasons in verdict(nothing).reasons.values()} == {
        ReasonCode.GROUP_BACKOFF
    }


def test_CCE_A9_2_failed_installation_backs_off_five_minutes_each_time() -> None:
    assert _after(*["InstallFailed"] * 4)[0] == [5, 5, 5, 5]


def test_CCE_A9_2_failed_installation_ends_a_sequence_of_stock_failures() -> None:
    assert _after("OutOfStock", "OutOfStock", "InstallFailed", "OutOfStock", "OutOfStock")[0] == [
        5,
        10,
        5,
        5,
        10,
    ]


def test_CCE_A9_2_failed_installation_never_shortens_an_active_backoff() -> None:
    _, sold_out = _after("OutOfStock", "OutOfStock", "OutOfStock")
    after = fail(sold_out, sold_out.last_failed + 60, Options(), "InstallFailed")
    assert (after.until, after.cls, after.attempt) == (sold_out.until, "OutOfStock", 3)
    late = fail(sold_out, sold_out.until - 60, Options(), "InstallFailed")
    assert (late.until, late.duration) == (sold_out.until + 240, sold_out.duration)
    assert _after("OutOfStock", record=late, now=late.until + 1)[0] == [30]


def test_CCE_A9_2_providers_use_the_error_class_of_failed_installations() -> None:
    assert {each.__name__ for each in errors.ProviderError.__subclasses__()} >= FLAT


def test_CCE_A9_2_broken_instance_is_deleted_and_its_pods_go_to_another_group() -> None:
    build = with_machines(anchored(), "a", 1, error=BROKEN, template=node("t", "2"), pool=POOL)
    build.nodes[0] = msgspec.structs.replace(build.nodes[0], unschedulable=True)
    build.group("b", template=node("t", "2")).pending(1, "1")
    plan, after = build.decide(Memory(groups={"a": asked(1, 60)}))
    backoff = after.groups["a"].backoff
    assert backoff is not None
    assert (backoff.cls, backoff.until) == ("InstallFailed", NOW + 300)
    assert repaired(plan)["a"][0] == "discard"
    assert growth(plan) == {"b": (1, 1)}


def _installing(ago: float) -> tuple[ClusterBuilder, Memory]:
    """An instance of a was requested that long ago and has not joined; b
    could also serve the pod."""
    build = with_machines(anchored(), "a", 1, template=node("t", "2"), pool=POOL)
    build.nodes[0] = msgspec.structs.replace(build.nodes[0], unschedulable=True)
    build.group("b", template=node("t", "2"), pool=Pool("q", max=9)).pending(1, "1")
    return build, seen(build, ago, {"a": asked(1, ago)})


@pytest.mark.parametrize(("ago", "new"), [(60.0, {}), (899.0, {}), (901.0, {"b": (1, 1)})])
def test_CCE_A9_3_pod_is_planned_again_after_fifteen_minutes_without_its_node(
    ago: float, new: dict[str, tuple[int, int]]
) -> None:
    build, known = _installing(ago)
    plan, after = build.decide(known)
    assert growth(plan) == new
    assert (after.groups["a"].request is None) is bool(new)


def test_CCE_A9_4_three_hours_without_a_failure_reset_the_backoff() -> None:
    _, record = _after(*["OutOfStock"] * 3)
    reset = Options().node_group_backoff_reset_timeout
    assert fail(record, record.last_failed + reset, Options(), "OutOfStock").duration == 1800
    assert fail(record, record.last_failed + reset + 1, Options(), "OutOfStock").duration == 300


def test_CCE_A9_4_simultaneous_failures_count_once() -> None:
    mine = facts_of(
        with_machines(anchored(), "g", 4, error=STOCK), Memory(groups={"g": asked(4, 60)})
    ).memory
    assert mine.backoff is not None
    assert (mine.backoff.duration, mine.backoff.attempt) == (300, 1)


def _came(pool: Pool | None, failed_ago: float) -> Backoff | None:
    """Remaining backoff of a third failure after an instance requested five
    minutes ago has become a node."""
    build = cluster().node("n", group="g").group("g", pool=pool)
    failed = Backoff(1200, NOW - failed_ago + 1200, NOW - failed_ago, "OutOfStock", attempt=3)
    known = GroupMemory(target=1, request=ScaleUpRequest(1, NOW - 300, NOW + 600), backoff=failed)
    return facts_of(build, Memory(groups={"g": known})).memory.backoff


def test_CCE_A9_4_success_resets_the_backoff_of_a_pools_group() -> None:
    """Applies to groups of a vendor's pool. Other groups follow upstream: the history resets after
    three hours, regardless of successes."""
    assert _came(POOL, 2000) is None
    assert _came(None, 2000) is not None


def test_CCE_A9_4_partly_failed_request_is_not_a_success() -> None:
    assert _came(POOL, 100) is not None
    assert _came(POOL, 1400) is not None, "it was asked for while the group was still backed off"


def test_CCE_A9_5_backoff_of_one_flavour_in_one_zone_leaves_its_pool_usable() -> None:
    build = with_machines(
        anchored(), "a", 1, error=STOCK, template=node("t", "2", zone="a"), pool=POOL, rank=1
    )
    build.nodes[0] = msgspec.structs.replace(build.nodes[0], unschedulable=True)
    build.group("b", template=node("t", "2", zone="b"), pool=POOL, rank=1).pending(2, "1")
    plan, after = build.decide(Memory(groups={"a": asked(1, 60)}))
    assert growth(plan) == {"b": (1, 2)}
    assert after.groups["b"].backoff is None


def test_CCE_15_backoff_lengths_reset_failed_installation_and_provision_time() -> None:
    lengths, record = _after(*["OutOfStock"] * 4)
    assert lengths == [5, 10, 20, 30]
    assert in_backoff(record, record.until)
    assert _after("InstallFailed")[0] == [5]
    assert _came(POOL, 2000) is None
    build, known = _installing(901.0)
    assert growth(build.plan(known)) == {"b": (1, 1)}
