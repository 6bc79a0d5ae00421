"""Deletion of unregistered machines: joined machines are never deleted, and placeholders only lower a number."""

from __future__ import annotations

import json

import msgspec
import pytest

from chalicelib.kube.errors import Unavailable
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, Transient
from tests.unit.providers.alicloud.fake_api import FakeAlicloudApi, FakeApiGroup, provider, remove


def world(size: int, **more: object) -> tuple[FakeAlicloudApi, list[str]]:
    api = FakeAlicloudApi(FakeApiGroup("asg-1", **more))  # type: ignore[arg-type]
    return api, api.fill("asg-1", size)


class DiscardPage(msgspec.Struct):
    body: bytes
    first: bool = True


class DiscardKube:
    """A cluster with these provider ids."""

    def __init__(self, *ids: str) -> None:
        self.ids, self.down = ids, False

    def list_pages(self, path: str, *, query: object = None) -> list[DiscardPage]:
        assert path == "/api/v1/nodes"
        if self.down:
            raise Unavailable("no answer")
        return [DiscardPage(json.dumps({"items": [{"spec": {"providerID": each}} for each in self.ids]}).encode())]


def discard(size: int, *handles: str) -> Operation:
    return remove(size, *handles, kind=OperationKind.DELETE_INSTANCES)


def test_alicloud_delete_instances_ignores_the_policy_minimum() -> None:
    api, names = world(3)
    assert isinstance(provider(api, "3:10:asg-1").delete_nodes(discard(3, names[0])), InProgress)


def test_alicloud_delete_instances_spares_joined_machines_and_writes_nothing() -> None:
    api, names = world(3)
    kube = DiscardKube("", "aws:///a/i-1", f"alicloud://cn-hangzhou.{names[0]}")
    outcome = provider(api, kube=kube).delete_nodes(discard(3, names[0], names[1]))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert names[0] in outcome.message
    assert api.writes() == []
    assert isinstance(provider(api, kube=kube).delete_nodes(discard(3, names[1])), InProgress)


def test_alicloud_delete_instances_waits_for_a_silent_cluster() -> None:
    api, names = world(3)
    kube = DiscardKube()
    kube.down = True
    with pytest.raises(Transient):
        provider(api, kube=kube).delete_nodes(discard(3, names[0]))
    assert api.writes() == []


def failed_growth(size: int, to_size: int, made: int = 0, **more: object) -> FakeAlicloudApi:
    api, _ = world(size, stock=made, **more)
    api.scale("asg-1", "TotalCapacity", to_size, token="t", at_once=True, metadata={"outscaler/operation": "grow-1"})
    api.step()
    api.calls.clear()
    return api


def test_alicloud_placeholders_are_deleted_by_lowering_the_desired_capacity() -> None:
    api = failed_growth(2, 5)
    handles = [each.handle for each in provider(api).observe(()).groups[0].instances if each.error]
    assert handles == ["placeholder-asg-1-0", "placeholder-asg-1-1", "placeholder-asg-1-2"]
    asked = discard(5, *handles)
    for _ in range(2):
        assert isinstance(provider(api).delete_nodes(asked), Succeeded)
    api.step()
    assert api.writes() == ["scale asg-1 TotalCapacity 2 later"]
    observed = provider(api).observe(()).groups[0]
    assert observed.target == 2
    assert all(each.error is None for each in observed.instances)
    assert api.scaled_in == []


def test_alicloud_repeated_deletion_of_some_placeholders_lowers_once() -> None:
    api = failed_growth(2, 5)
    for _ in range(3):
        assert isinstance(provider(api).delete_nodes(discard(5, "placeholder-asg-1-0")), Succeeded)
    assert api.all["asg-1"].desired == 4


def test_alicloud_placeholder_deletion_spares_instances_that_arrived_late() -> None:
    api = failed_growth(2, 5)
    api.fill("asg-1", 2)
    api.all["asg-1"].desired = 5  # ESS retried by itself and created two
    assert isinstance(provider(api).delete_nodes(discard(5, *(f"placeholder-asg-1-{n}" for n in range(3)))), Succeeded)
    api.step()
    assert api.all["asg-1"].desired == 4
    assert api.scaled_in == []


def test_alicloud_placeholder_deletion_with_a_lost_answer_lowers_once() -> None:
    api = failed_growth(2, 5)
    api.lost.add("scale")
    asked = discard(5, "placeholder-asg-1-0", "placeholder-asg-1-1")
    with pytest.raises(Transient):
        provider(api).delete_nodes(asked)
    assert isinstance(provider(api).delete_nodes(asked), Succeeded)
    assert api.all["asg-1"].desired == 3


def test_alicloud_placeholders_are_kept_during_ess_retries_or_after_a_resize() -> None:
    api = failed_growth(2, 5)
    group = api.all["asg-1"]
    group.activities.append(msgspec.structs.replace(group.activities[0], status_code="InProgress"))
    with pytest.raises(Conflict):
        provider(api).delete_nodes(discard(5, "placeholder-asg-1-0"))
    group.activities.pop()
    group.desired = 7
    outcome = provider(api).delete_nodes(discard(5, "placeholder-asg-1-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert api.writes() == []


def test_alicloud_maximum_lowered_below_the_size_costs_no_instance() -> None:
    api = failed_growth(4, 6)
    api.all["asg-1"].most = 3  # ESS would reduce 4 to 3 and remove one instance too many
    outcome = provider(api).delete_nodes(discard(6, "placeholder-asg-1-0", "placeholder-asg-1-1"))
    assert isinstance(outcome, Failed)
    assert "MaxSize 3" in outcome.message
    assert api.writes() == []


def test_alicloud_placeholder_of_another_group_is_refused() -> None:
    api = failed_growth(2, 5)
    outcome = provider(api).delete_nodes(discard(5, "placeholder-asg-2-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert api.writes() == []


def test_alicloud_placeholder_rollback_reports_whether_capacity_was_lowered() -> None:
    api = failed_growth(2, 5)
    asked = discard(5, "placeholder-asg-1-0")
    assert provider(api).cancel_delete(asked) is True
    provider(api).delete_nodes(asked)
    assert provider(api).cancel_delete(asked) is False
