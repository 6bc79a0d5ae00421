"""Tests of reading through ESS over HTTP: pages, disabled groups, text instead of
numbers, both spellings of ids.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.model.group import InstanceState
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.errors import ProviderError, Transient
from infra.emulators.alicloud.dispatcher import AlicloudDispatcher
from infra.emulators.alicloud.serializers import older
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import Incoming
from tests.providers.alicloud.fixture import AlicloudBench, drive, order, seen


@pytest.fixture
def bench() -> Iterator[AlicloudBench]:
    with AlicloudBench() as made:
        yield made


def test_alicloud_all_pages_of_137_instances_are_read(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=137, most=200)
    assert len(seen(bench, group).instances) == 137
    assert sum(call.action == "DescribeScalingInstances" for call in bench.look()) == 3


@pytest.mark.parametrize(
    "fault", [VendorFault.CUT_OFF, VendorFault.SERVER_ERROR, VendorFault.WEB_PAGE]
)
def test_alicloud_failed_page_fails_the_group_and_never_lowers_its_size(
    bench: AlicloudBench, fault: VendorFault
) -> None:
    group, other = bench.add_group("g", size=137, most=200), bench.add_group("other", size=1)
    provider, nodes, front = bench.provider(), bench.nodes(), bench.server.front
    handle = front.handle

    def on_second_page(incoming: Incoming) -> object:
        if "PageNumber=2" in incoming.target:
            front.faults.next(fault, on="DescribeScalingInstances")
        return handle(incoming)

    front.handle = on_second_page  # type: ignore[method-assign, assignment]
    found = {each.id: each for each in provider.observe(nodes).groups}
    assert found[group].error
    assert not found[group].instances
    assert not found[other].error


def test_alicloud_unreadable_group_list_yields_no_groups(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    provider, nodes = bench.provider(), bench.nodes()
    bench.server.faults.next(VendorFault.CUT_OFF, on="DescribeScalingGroups", times=-1)
    with pytest.raises(Transient):
        provider.observe(nodes)


@pytest.mark.parametrize("prefix", ["", "alicloud://"])
def test_alicloud_instance_ids_use_the_spelling_of_the_cluster(prefix: str) -> None:
    with AlicloudBench(prefix=prefix) as bench:
        group = bench.add_group("g", size=2)
        bench.cloud.add_machines(group, 1, state="Pending")
        spelled = [each.id for each in seen(bench, group).instances]
        assert {node.provider_id for node in bench.nodes()} < set(spelled)
        assert all(each.startswith(f"{prefix}cn-hangzhou.i-") for each in spelled)


def test_alicloud_late_listed_instance_is_found_once_listed(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=1)
    assert len(seen(bench, group).instances) == 1
    bench.cloud.add_machines(group, 1)
    assert len(seen(bench, group).instances) == 2


def test_alicloud_leaving_and_stopped_instances_are_distinguished(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=3)
    first, second, third = bench.machines(group)
    bench.cloud.set_state(first, "Removing")
    bench.cloud.set_state(second, "Stopped")
    states = {each.handle: each.state for each in seen(bench, group).instances}
    assert states == {first: InstanceState.DELETING, third: InstanceState.RUNNING}


@pytest.mark.parametrize(
    "state", ["Inactive", "Deleting", "hidden", "suspended", "no-scale-out", "ECI", "gone"]
)
def test_alicloud_disabled_group_does_not_block_other_groups(
    bench: AlicloudBench, state: str
) -> None:
    group, other = bench.add_group("g", size=1), bench.add_group("other", size=1)
    seen(bench, group)  # it existed a moment ago
    _switch_off(bench, group, state)
    off = seen(bench, group)
    assert off.error
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, other, 1, 2)), Succeeded)
    assert len(bench.machines(other)) == 2


def _switch_off(bench: AlicloudBench, group: str, state: str) -> None:
    held = bench.cloud.groups[group]
    if state in {"Inactive", "hidden"}:
        held.state, bench.cloud.hides_inactive = "Inactive", state == "hidden"
    elif state in {"Deleting", "gone"}:
        bench.cloud.delete_group(group)
        bench.settle(100.0 if state == "gone" else 1.0)
    elif state == "suspended":
        held.system_suspended = True
    elif state == "no-scale-out":
        held.suspended.add("ScaleOut")
    else:
        held.kind = "ECI"


def test_alicloud_numbers_and_booleans_as_text_make_no_difference(bench: AlicloudBench) -> None:
    group = bench.add_group("g", size=3, most=7)
    plain = seen(bench, group)
    bench.server.front.text_values = True
    assert seen(bench, group) == plain
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 3, 4)), Succeeded)


def test_alicloud_both_api_versions_give_equal_results(bench: AlicloudBench) -> None:
    """Our client uses the newer version; the older version's answer is the
    same with its lists wrapped."""
    group = bench.add_group("g", size=2)
    seen(bench, group)
    assert {call.version for call in bench.look()} == {"2022-02-22", "2014-05-26"}
    assert older({"ScalingGroups": [{"ScalingGroupId": group, "VSwitchIds": ["v"]}]}) == {
        "ScalingGroups": {
            "ScalingGroup": [{"ScalingGroupId": group, "VSwitchIds": {"VSwitchId": ["v"]}}]
        }
    }
    assert isinstance(bench.server.front, AlicloudDispatcher)


def test_alicloud_forty_groups_are_read_in_batches_of_twenty(bench: AlicloudBench) -> None:
    for number in range(40):
        bench.add_group(f"g{number}")
    provider, nodes = bench.provider(), bench.nodes()
    assert len(provider.observe(nodes).groups) == 40
    calls = bench.look()
    assert sum(call.action == "DescribeScalingGroups" for call in calls) == 2
    assert sum(call.action == "DescribeScalingConfigurations" for call in calls) <= 4
    assert sum(call.action == "DescribeInstanceTypes" for call in calls) == 1


def test_alicloud_empty_or_foreign_provider_id_blocks_nothing(bench: AlicloudBench) -> None:
    import msgspec

    group = bench.add_group("g", size=1)
    strange = [
        msgspec.structs.replace(bench.nodes()[0], name=name, provider_id=id_)
        for name, id_ in (
            ("a", ""),
            ("b", "aws:///eu-west-1a/i-1"),
            ("c", "nonsense"),
            ("d", "alicloud://"),
        )
    ]
    found = bench.provider().observe([*bench.nodes(), *strange]).groups
    assert [len(each.instances) for each in found if each.id == group] == [1]


@pytest.mark.parametrize(
    ("template", "types"),
    [
        (False, ("ecs.g7.xlarge",)),
        (True, ("ecs.g6.large",)),
        (False, ("ecs.g7.2xlarge", "ecs.c7.xlarge")),
    ],
    ids=["configuration", "launch-template", "many-types"],
)
def test_alicloud_every_kind_of_group_has_a_node_template(
    bench: AlicloudBench, template: bool, types: tuple[str, ...]
) -> None:
    made = bench.cloud.add_group("t", template=template, types=types)
    bench.bind(made.id, 0, 10)
    found = seen(bench, made.id)
    assert found.template is not None
    least = min(bench.cloud.types[each].cpu for each in types)
    assert found.template.capacity["cpu"] == least * 1000


def test_alicloud_node_templates_equal_the_nodes_that_join(bench: AlicloudBench) -> None:
    tags = {
        "k8s.io/cluster-autoscaler/node-template/label/team": "web",
        "k8s.io/cluster-autoscaler/node-template/taint/dedicated": "batch:NoSchedule",
    }
    for kind in ("ecs.g7.xlarge", "ecs.g8y.xlarge"):
        made = bench.cloud.add_group(kind, types=(kind,), size=1, tags=tags)
        bench.bind(made.id, 0, 10)
        template = seen(bench, made.id).template
        node = next(each for each in bench.nodes() if each.name in made.machines)
        assert template is not None
        shared = set(node.labels) & set(template.labels) - {"kubernetes.io/hostname"}
        assert {"team", "kubernetes.io/arch", "topology.kubernetes.io/zone"} <= shared
        assert {key: template.labels[key] for key in shared} == {
            key: node.labels[key] for key in shared
        }
        assert template.capacity == node.capacity
        assert [taint.key for taint in template.taints] == ["dedicated"]


def test_alicloud_forbidden_read_is_reported_and_stops_further_calls(bench: AlicloudBench) -> None:
    bench.add_group("g", size=1)
    provider = bench.provider()
    bench.server.faults.next(VendorFault.FORBIDDEN, times=-1)
    with pytest.raises(ProviderError) as caught:
        provider.observe(())
    assert caught.value.error_class == "Unauthorized"
    assert len(bench.calls()) == 1
