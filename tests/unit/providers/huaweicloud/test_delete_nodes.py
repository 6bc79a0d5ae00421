"""Removal by node id, and deletion of unregistered nodes."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, NotFound, Throttled, Transient
from chalicelib.providers.huaweicloud.models import Autoscaling, CceJob
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import (
    OTHER,
    POOL,
    SOLD_OUT,
    A,
    B,
    Cce,
    FakeApiGroup,
    FakeCceApi,
    continued,
    entry,
    node,
    provider,
    removal,
    to_the_end,
    two,
    uid,
)
from tests.unit.providers.huaweicloud.fake_kube_lists import FakeApiKube

DISCARD = OperationKind.DELETE_INSTANCES


def refused(
    api: FakeCceApi,
    *handles: str,
    cls: str = "InvalidRequest",
    kind: OperationKind = OperationKind.DELETE_NODES,
    group: str = A,
    entries: tuple[object, ...] = (),
    kube: FakeApiKube | None = None,
) -> Failed:
    """A removal that sends nothing."""
    outcome = provider(api, *entries, kube=kube).delete_nodes(  # type: ignore[arg-type]
        removal(3, *handles, group=group, kind=kind)
    )
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, api.writes()) == (cls, [])
    return outcome


def test_CCE_19_two_nodes_are_two_deletions_and_no_total() -> None:
    api = FakeCceApi(two(5, 2))
    first, second = api.of(POOL)[2:4]
    assert isinstance(to_the_end(api, removal(5, first, second)), Succeeded)
    assert api.writes() == [f"delete_node {first}", f"delete_node {second}"]
    assert (api.named, api.chosen, api.all[POOL].desired) == ([first, second], [], 5)


def test_CCE_19_foreign_node_stops_the_whole_removal() -> None:
    api = FakeCceApi(two(5, 2), Cce([FakeApiGroup(desired=1)], OTHER, "pool-b"))
    mine = api.of(POOL)[0]
    assert OTHER in refused(api, mine, api.of(OTHER)[0]).message
    assert "c7-az2" in refused(api, mine, api.of(POOL, "c7-az2")[0]).message
    api.change(api.of(POOL)[1], pool="")
    assert "no pool" in refused(api, mine, uid(2)).message


@each_row("handle", ["", "pool-a-1", "192.0.2.1", f"{B}/placeholder-0"])
def test_CCE_19_target_without_a_uid_or_of_another_group_stops_the_whole_removal(handle: str) -> None:
    api = FakeCceApi(two())
    refused(api, api.of(POOL)[0], handle)


def test_CCE_DANGER_3_removals_name_every_node_and_the_vendor_never_chooses() -> None:
    for count in range(1, 5):
        for kind in (OperationKind.DELETE_NODES, DISCARD):
            api = FakeCceApi(two(5, 2))
            names = api.of(POOL)[5 - count :]
            assert isinstance(to_the_end(api, removal(5, *names, kind=kind)), Succeeded)
            assert api.writes() == [f"delete_node {name}" for name in names]
            assert not api.chosen


def test_huawei_remove_finds_a_node_by_its_own_data() -> None:
    api = FakeCceApi(two())
    name = api.of(POOL)[0]
    assert isinstance(to_the_end(api, removal(3, f"huaweicloud:///{name.upper()}")), Succeeded)
    assert api.named == [name]


def test_CCE_A6_1_pool_minimum_applies_to_all_its_groups_together() -> None:
    api = FakeCceApi(two(3, 2, autoscaling=Autoscaling(True, 4, 10)))
    names = api.of(POOL)
    assert "4 of its pool" in refused(api, *names[:2]).message
    assert isinstance(to_the_end(api, removal(3, names[0])), Succeeded)


def test_CCE_A6_3_flavour_minimum_applies_to_its_group() -> None:
    api = FakeCceApi(two())
    api.all[POOL].groups[1].min = 2
    assert "minimum 2" in refused(api, api.of(POOL, "c7-az2")[0], group=B).message
    refused(FakeCceApi(two()), uid(1), uid(2), entries=(entry("pool-a/default", 2, 5),))


def test_huawei_delete_instances_may_go_below_the_minimum() -> None:
    api = FakeCceApi(two(3, 2, autoscaling=Autoscaling(True, 5, 10)))
    name = api.of(POOL)[0]
    assert isinstance(to_the_end(api, removal(3, name, kind=DISCARD)), Succeeded)
    assert api.named == [name]


def test_huawei_delete_instances_spares_a_joined_machine_however_it_is_matched() -> None:
    api = FakeCceApi(two())
    for machine in api.of(POOL)[:1]:
        known = api.machines[machine]
        for joined in (node(known), node(known, f"x://{known.server}"), node(known, ""), node(known, "", known.name)):
            refused(api, machine, cls="Conflict", kind=DISCARD, kube=FakeApiKube(joined))
    assert isinstance(
        to_the_end(api, removal(3, uid(1), kind=DISCARD), kube=FakeApiKube(node(api.machines[uid(2)]))), Succeeded
    )


def test_CCE_A8_3_protected_or_prepaid_node_stays() -> None:
    api = FakeCceApi(two())
    first, second, third = api.of(POOL)
    api.change(first, annotations={"example.com/scale-down-disabled": "true"})
    api.change(second, billing=1)
    assert "protected" in refused(api, first).message
    assert "prepaid" in refused(api, second, third).message


def test_CCE_A8_3_at_most_the_unprotected_number_is_removed() -> None:
    api = FakeCceApi(two())
    api.all[POOL].groups[0].held = 2
    names = api.of(POOL)
    assert "2 of its 3" in refused(api, *names[:2]).message
    assert isinstance(to_the_end(api, removal(3, names[0])), Succeeded)


def test_huawei_remove_counts_vanished_and_leaving_nodes_as_removed() -> None:
    api = FakeCceApi(two())
    leaving = api.of(POOL)[0]
    api.change(leaving, phase="Deleting")
    assert isinstance(provider(api).delete_nodes(removal(3, leaving, uid(99))), Succeeded)
    assert not api.writes()


def test_huawei_remove_from_a_deleted_pool_is_done() -> None:
    api = FakeCceApi()
    assert isinstance(provider(api).delete_nodes(removal(3, uid(1), f"{A}/placeholder-0", kind=DISCARD)), Succeeded)
    api = FakeCceApi(two())
    name = api.of(POOL)[0]
    del api.all[POOL]
    refused(api, name, cls="NotFound")


def test_huawei_interrupted_removal_continues_where_it_stopped() -> None:
    api = FakeCceApi(two(5, 2))
    names = api.of(POOL)
    api.lost.add("delete_node")
    with pytest.raises(Transient):
        provider(api).delete_nodes(removal(5, *names[:3]))
    assert isinstance(to_the_end(api, removal(5, *names[:3])), Succeeded)
    assert sorted(api.named) == sorted(names[:3])
    assert api.all[POOL].groups[0].desired == 2


def test_huawei_remove_looks_up_many_targets_with_one_list() -> None:
    api = FakeCceApi(two(6, 0))
    to_the_end(api, removal(6, *api.of(POOL)[:5]))
    assert "node" not in api.calls


def test_huawei_node_vanishing_between_two_calls_counts_as_removed() -> None:
    api = FakeCceApi(two())
    name = api.of(POOL)[0]

    class Gone(FakeCceApi):
        def delete_node(self, id: str) -> str:  # noqa: A002
            self.machines.pop(id, None)
            return super().delete_node(id)

    api.__class__ = Gone
    assert isinstance(to_the_end(api, removal(3, name)), Succeeded)


def test_huawei_deletion_with_404_for_an_existing_node_is_a_failure() -> None:
    api = FakeCceApi(two())
    api.trouble["delete_node"] = [NotFound("no such thing")]
    outcome = provider(api).delete_nodes(removal(3, api.of(POOL)[0]))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"


def test_huawei_failed_job_explains_why_a_node_still_exists() -> None:
    api = FakeCceApi(two())
    name = api.of(POOL)[0]
    asked = removal(3, name)
    asked = continued(asked, provider(api).delete_nodes(asked))
    api.change(name, phase="Active")
    assert isinstance(provider(api).poll(asked), InProgress)
    api.works = {key: CceJob(key, "Failed", "Security group [example] not found") for key in api.works}
    outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert "Security group" in outcome.message
    assert len(api.writes()) == 1


def test_huawei_deletion_accepted_without_effect_fails_after_some_polls() -> None:
    api = FakeCceApi(two())
    name = api.of(POOL)[0]
    asked = removal(3, name)
    asked = continued(asked, provider(api).delete_nodes(asked))
    api.change(name, phase="Active")
    api.works.clear()
    for _ in range(4):
        asked = continued(asked, provider(api).poll(asked))
    outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert len(api.writes()) == 1


@each_row("error", [Throttled("slowly"), Conflict("locked"), Transient("502")])
def test_huawei_remove_raises_temporary_errors(error: Throttled) -> None:
    api = FakeCceApi(two())
    api.trouble["delete_node"] = [error]
    with pytest.raises(type(error)):
        provider(api).delete_nodes(removal(3, api.of(POOL)[0]))


def test_huawei_busy_cluster_gets_no_deletion() -> None:
    api = FakeCceApi(two())
    api.cluster = "Upgrading"
    with pytest.raises(Conflict):
        provider(api).delete_nodes(removal(3, api.of(POOL)[0]))
    assert not api.writes()


def short() -> FakeCceApi:
    """A pool of five whose first group gets only two of them."""
    api = FakeCceApi(two(2, 1))
    group = api.all[POOL].groups[0]
    group.desired, group.stock, group.conditions = 4, 0, (SOLD_OUT,)
    api.all[POOL].desired = 5
    return api


def test_CCE_A9_1_placeholders_only_lower_the_number() -> None:
    api = short()
    outcome = to_the_end(api, removal(4, f"{A}/placeholder-0", f"{A}/placeholder-1", kind=DISCARD))
    assert isinstance(outcome, Succeeded)
    assert (api.writes(), api.chosen, api.named) == (["scale 3 default"], [], [])


def test_CCE_A9_2_failed_node_is_deleted_by_uid_together_with_placeholders() -> None:
    api = short()
    broken = api.add(POOL, phase="Error")
    outcome = to_the_end(api, removal(4, broken, f"{A}/placeholder-0", kind=DISCARD))
    assert isinstance(outcome, Succeeded)
    assert api.writes() == ["scale 4 default", f"delete_node {broken}"]
    assert (api.all[POOL].groups[0].desired, api.chosen) == (2, [])


def test_huawei_placeholders_replaced_by_late_nodes_are_not_removed() -> None:
    api = short()
    api.add(POOL)
    api.add(POOL)
    outcome = provider(api).delete_nodes(removal(4, f"{A}/placeholder-0", f"{A}/placeholder-1", kind=DISCARD))
    assert isinstance(outcome, Succeeded)
    assert not api.writes()


def test_huawei_placeholders_of_a_larger_size_conflict_and_of_a_smaller_are_done() -> None:
    outcome = provider(short()).delete_nodes(removal(3, f"{A}/placeholder-0", kind=DISCARD))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert isinstance(provider(short()).delete_nodes(removal(6, f"{A}/placeholder-0", kind=DISCARD)), Succeeded)


def test_huawei_release_reports_whether_a_target_still_exists() -> None:
    api = short()
    name = api.of(POOL)[0]
    assert provider(api).cancel_delete(removal(4, name))
    api.change(name, phase="Deleting")
    assert not provider(api).cancel_delete(removal(4, name))
    assert provider(api).cancel_delete(removal(4, f"{A}/placeholder-0", kind=DISCARD))
    assert not provider(api).cancel_delete(removal(5, f"{A}/placeholder-0", kind=DISCARD))
    assert not provider(FakeCceApi()).cancel_delete(removal(4, f"{A}/placeholder-0", kind=DISCARD))
    assert not api.writes()
