"""The vendor's names of states and conditions."""

from __future__ import annotations

from chalicelib.model.group import InstanceState
from chalicelib.providers.huaweicloud.models import (
    NODE_STATES,
    CceCondition,
    CceNode,
    NodePool,
    ScaleGroup,
    cluster_off,
    failure,
    is_leaving,
    refusal,
)
from tests.cases import each_row


def pool(
    *conditions: CceCondition, own: tuple[CceCondition, ...] = (), phase: str = "", groups: int = 1
) -> NodePool:
    """A pool whose first group has these conditions."""
    made = [ScaleGroup("default", conditions=own), *(ScaleGroup(f"g{n}") for n in range(1, groups))]
    return NodePool("p", groups=tuple(made), conditions=conditions, phase=phase)


QUOTA, STOCK = (
    CceCondition("QuotaInsufficient", "True"),
    CceCondition("ResourceInsufficient", "true", "SoldOut", "no c7"),
)


@each_row(
    ("made", "cls"),
    [
        (pool(), ""),
        (pool(own=(QUOTA,)), "QuotaExceeded"),
        (pool(own=(STOCK, QUOTA)), "QuotaExceeded"),
        (pool(QUOTA), "QuotaExceeded"),
        (pool(QUOTA, groups=2), ""),
        (pool(QUOTA, own=(STOCK,)), "OutOfStock"),
        (pool(phase="SoldOut"), "OutOfStock"),
        (pool(phase="SoldOut", groups=2), ""),
        (pool(phase="Synchronizing"), ""),
        (pool(own=(CceCondition("QuotaInsufficient", "False"),)), ""),
        (pool(own=(CceCondition("Odd", "True"),)), ""),
    ],
)
def test_CCE_20_reasons_of_missing_nodes(made: NodePool, cls: str) -> None:
    found = failure(made, made.groups[0])
    assert (found.error_class if found is not None else "") == cls


def test_huawei_condition_message_of_the_vendor_is_reported() -> None:
    made = pool(own=(STOCK,))
    found = failure(made, made.groups[0])
    assert found is not None
    assert found.message == "the flavour is sold out (SoldOut, no c7)"


@each_row(
    ("made", "cls"),
    [
        (pool(own=(STOCK,)), ""),
        (pool(own=(CceCondition("Scalable", "True"), STOCK)), ""),
        (pool(own=(CceCondition("Scalable", "False"),)), "Unknown"),
        (pool(own=(CceCondition("Scalable", "unheard"),)), ""),
        (pool(CceCondition("Scalable", "False"), QUOTA, groups=2), "QuotaExceeded"),
        (pool(CceCondition("Scalable", "False"), own=(STOCK,), groups=2), "OutOfStock"),
    ],
)
def test_CCE_20_reasons_why_a_group_cannot_scale_up(made: NodePool, cls: str) -> None:
    found = refusal(made, made.groups[0])
    assert (found.error_class if found is not None else "") == cls


def test_huawei_states_of_leaving_nodes() -> None:
    leaving = {
        phase for phase in [*NODE_STATES, "", "Odd"] if is_leaving(CceNode("n", phase=phase))
    }
    assert leaving == {
        phase for phase, state in NODE_STATES.items() if state is InstanceState.DELETING
    }


@each_row(
    ("phase", "off", "passes"),
    [
        ("Available", False, True),
        ("ScalingUp", False, True),
        ("ScalingDown", False, True),
        ("", False, True),
        ("Upgrading", True, True),
        ("Odd", True, True),
        ("Hibernation", True, False),
        ("Deleting", True, False),
    ],
)
def test_huawei_cluster_phases(phase: str, off: bool, passes: bool) -> None:
    text, waits = cluster_off(phase)
    assert (bool(text), waits) == (off, passes)
