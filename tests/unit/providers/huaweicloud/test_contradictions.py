"""Contradictory numbers of one pool: nothing is bought and nothing is removed on their basis."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Outcome
from chalicelib.providers.errors import Conflict
from chalicelib.providers.huaweicloud.decoding import read_pool
from chalicelib.providers.huaweicloud.models import NodePool
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import (
    POOL,
    FakeCceApi,
    continued,
    growth,
    provider,
    shrinkage,
    two,
)


def wire(desired: int | None, *groups: tuple[int, int]) -> NodePool:
    """A pool in CCE's form. groups: desired and existing of `default`, of `c7-az2`."""
    names = ("default", "c7-az2")
    statuses = [
        {"name": name, "desiredNodeCount": want, "existingNodeCount": {"total": there}}
        for name, (want, there) in zip(names, groups, strict=True)
    ]
    pool = read_pool(
        {
            "metadata": {"uid": POOL, "name": "pool-a"},
            "spec": {
                "initialNodeCount": desired,
                "autoscaling": {"enable": True, "maxNodeCount": 20},
                "nodeTemplate": {"flavor": "c7.xlarge.2", "az": "cn-north-4a"},
                "extensionScaleGroups": [
                    {
                        "metadata": {"name": "c7-az2"},
                        "spec": {"flavor": "c7.xlarge.2", "az": "cn-north-4b", "autoscaling": {"enable": True}},
                    }
                ],
            },
            "status": {"currentNode": sum(there for _, there in groups), "scaleGroupStatuses": statuses},
        }
    )
    assert not pool.error
    return pool


class ContradictionsDeclaration(FakeCceApi):
    """The answers of CCE about the pool, independent of its actual state."""

    def __init__(self, said: NodePool) -> None:
        super().__init__(two(3, 2))
        self.said = said

    def pool(self, id: str) -> NodePool:  # noqa: A002
        super().pool(id)
        return self.said


def looked_at(api: FakeCceApi, size: int = 3, to: int = 4) -> list[Outcome]:
    """Calls a scale-up as long as it waits."""
    asked, found = growth(size, to), list[Outcome]()
    while not found or isinstance(found[-1], InProgress):
        found.append(provider(api).scale_up(asked))
        if isinstance(found[-1], InProgress):
            asked = continued(asked, found[-1])
        assert len(found) < 20
    return found


@each_row(
    ("said", "why"),
    [
        (wire(4, (3, 3), (3, 3)), "add up to 6"),  # the pool already shows a concurrent removal
        (wire(0, (3, 3), (2, 2)), "add up to 5"),
        (wire(9, (3, 3), (2, 2)), "add up to 5"),
        (wire(None, (3, 5), (2, 2)), "more than"),
        (wire(5, (3, 3), (2, 9)), "more than"),
        (wire(5, (3, 7), (2, 0)), "more than"),
    ],
    ids=["lowered", "nought", "too many", "unsaid", "more beside", "more here"],
)
def test_CCE_DANGER_1_CCE_18_contradictory_numbers_cause_no_request(said: NodePool, why: str) -> None:
    api = ContradictionsDeclaration(said)
    *waited, last = looked_at(api)
    assert isinstance(last, Failed)
    assert (last.error_class, why in last.message, len(waited), api.writes()) == ("Unknown", True, 12, [])


def test_CCE_18_pool_ahead_of_its_groups_is_awaited() -> None:
    api = ContradictionsDeclaration(wire(7, (3, 3), (2, 2)))
    asked = continued(growth(3, 4), provider(api).scale_up(growth(3, 4)))
    api.said = wire(5, (3, 3), (2, 2))  # the groups were right
    asked = continued(asked, provider(api).scale_up(asked))
    assert (asked.status.data["base"], asked.status.data["total"], api.writes()) == ("5", "6", [])


def test_CCE_19_contradictory_numbers_cause_no_lower_size() -> None:
    """6 - 1 would exceed the desired 4 by one."""
    api = ContradictionsDeclaration(wire(4, (3, 1), (3, 1)))
    for each in list(api.machines)[:3]:
        del api.machines[each]
    with pytest.raises(Conflict):
        provider(api).decrease_target(shrinkage(3, 2))
    assert api.writes() == []


def test_huawei_pool_with_consistent_numbers_again_is_scaled_up() -> None:
    api = ContradictionsDeclaration(wire(4, (3, 3), (3, 3)))
    asked = continued(growth(3, 5), provider(api).scale_up(growth(3, 5)))
    api.said = wire(5, (3, 3), (2, 2))
    asked = continued(asked, provider(api).scale_up(asked))
    assert continued(asked, provider(api).scale_up(asked)).status.data["sent"] == "yes"
    assert api.writes() == ["scale 7 default"]
