"""Tests of reading over HTTP: pages, states, mapping of nodes to servers, templates, and
answers that cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.model.group import InstanceState
from chalicelib.providers.kit.errors import NotFound, ProviderError, Transient
from infra.emulators.cherryservers.attached_account import CherryRegistrationOptions
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.cherryservers.fixture import CherryBench, seen


@pytest.fixture
def bench() -> Iterator[CherryBench]:
    with CherryBench() as made:
        yield made


def failure(bench: CherryBench) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        bench.provider().observe(bench.nodes())
    return raised.value


@pytest.mark.parametrize("cap", [1, 3, 7, 8])
def test_cherry_paged_list_is_read_to_its_end(bench: CherryBench, cap: int) -> None:
    bench.server.front.actions.cap = cap
    group = bench.add_group("g", size=7)
    assert len(seen(bench, group).instances) == 7
    assert len([call for call in bench.look() if call.action == "list_servers"]) == -(-7 // cap)


def test_cherry_list_shorter_than_its_total_gives_no_size(bench: CherryBench) -> None:
    bench.add_group("g", size=4)
    bench.server.front.hidden = 2
    assert isinstance(failure(bench), Transient)


def test_cherry_list_without_a_total_is_taken_as_complete(bench: CherryBench) -> None:
    bench.server.front.counts = False
    assert len(seen(bench, bench.add_group("g", size=3)).instances) == 3


def test_cherry_redirect_is_not_followed_with_the_token(bench: CherryBench) -> None:
    bench.add_group("g", size=1)
    with CherryBench() as elsewhere:
        bench.server.front.redirect = f"{elsewhere.server.root}/projects/10001/servers"
        assert bench.token not in str(failure(bench))
        assert not elsewhere.server.log


def test_cherry_absent_project_is_not_found_and_foreign_project_is_refused(
    bench: CherryBench,
) -> None:
    bench.add_group("g", size=1)
    bench.default["project-id"] = 7
    error = failure(bench)
    assert isinstance(error, NotFound)
    assert "Project not found" in error.message
    bench.default["project-id"] = 20002
    assert failure(bench).error_class == "Unauthorized"


@pytest.mark.parametrize("wordy", [False, True])
def test_cherry_error_text_of_the_vendor_is_reported(bench: CherryBench, wordy: bool) -> None:
    bench.add_group("g", size=1)
    bench.server.front.wordy = wordy
    bench.server.faults.next(VendorFault.FORBIDDEN, times=-1)
    error = failure(bench)
    assert "You are not allowed to perform this action" in error.message
    assert "403" in error.message
    assert "GET" in error.message


@pytest.mark.parametrize("state", ["pending", "inactive", "active"])
def test_cherry_server_states_map_to_instance_states(bench: CherryBench, state: str) -> None:
    group = bench.add_group("g", size=5)
    going, broken, off, rescued, _ = bench.cloud.members(group)
    bench.cloud.terminate(going)
    broken.state, broken.status = state, "failed deployment"
    broken.fate = broken.fate.__class__(fails=True, joins=False)
    off.state = "inactive"
    rescued.status = "rescue mode"
    found = {each.handle: each for each in seen(bench, group).instances}
    assert seen(bench, group).target == 4
    assert [found[str(each.id)].state for each in (going, broken, off, rescued)] == [
        InstanceState.DELETING,
        InstanceState.CREATING,
        InstanceState.RUNNING,
        InstanceState.RUNNING,
    ]
    assert [handle for handle, each in found.items() if each.error] == [str(broken.id)]


def test_cherry_unknown_server_state_is_running_and_reported_once(bench: CherryBench) -> None:
    group = bench.add_group("g", size=3)
    for server in bench.cloud.members(group)[:2]:
        server.status = "meditating"
    observed = bench.provider().observe(bench.nodes())
    assert [each.state for each in observed.groups[0].instances] == [InstanceState.RUNNING] * 3
    assert len([gap for gap in observed.gaps if "meditating" in gap.detail]) == 1


@pytest.mark.parametrize(
    ("prefix", "ours"), [("cherryservers://", True), ("", True), ("aws://", False)]
)
def test_cherry_node_is_matched_by_server_id_in_both_spellings(
    bench: CherryBench, prefix: str, ours: bool
) -> None:
    bench.ways = CherryRegistrationOptions(boot=0.0, prefix=prefix)
    group = bench.add_group("g", size=1)
    (instance,) = seen(bench, group).instances
    (node,) = bench.nodes()
    assert (instance.id == node.provider_id) is ours


def test_cherry_node_without_an_id_is_matched_by_hostname_without_a_call(
    bench: CherryBench,
) -> None:
    group = bench.add_group("g", size=3)
    bench.nameless = True
    found = seen(bench, group)
    assert sorted(each.node for each in found.instances) == sorted(
        node.name for node in bench.nodes()
    )
    assert not [call for call in bench.look() if call.action == "get_server"]


def test_cherry_pass_costs_one_list_and_one_plan_an_hour_for_any_node_count(
    bench: CherryBench,
) -> None:
    for name in ("g", "h"):
        bench.add_group(name, size=10)
    bench.provider().observe(bench.nodes())
    assert sorted(call.action for call in bench.look()) == ["get_plan", "list_servers"]
    bench.clock.advance(1800.0)
    bench.provider().observe(bench.nodes())
    assert [call.action for call in bench.look()] == ["list_servers"]
    bench.clock.advance(1801.0)
    bench.provider().observe(bench.nodes())
    assert sorted(call.action for call in bench.look()) == ["get_plan", "list_servers"]


def test_cherry_node_label_makes_no_server_a_pool_member(bench: CherryBench) -> None:
    bench.ways = CherryRegistrationOptions(boot=0.0, pool_label=True)
    group = bench.add_group("g", size=1)
    stranger = bench.cloud.add_server("g", tags={"k8s-cluster": "ours"})
    assert str(stranger.id) not in {each.handle for each in seen(bench, group).instances}


def test_cherry_node_template_has_the_labels_of_real_nodes(bench: CherryBench) -> None:
    group = bench.add_group("g", size=1, instance_type="e3_1240v3")
    template = seen(bench, group).template
    (node,) = bench.nodes()
    assert template is not None
    for key in (
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "kubernetes.io/arch",
        "kubernetes.io/os",
    ):
        assert template.labels[key] == node.labels[key]
    assert {
        name: template.capacity[name] for name in ("cpu", "memory", "ephemeral-storage", "pods")
    } == {name: node.capacity[name] for name in ("cpu", "memory", "ephemeral-storage", "pods")}


def test_cherry_unknown_plan_stops_only_its_pool(bench: CherryBench) -> None:
    bench.pools["bad"] = {"plan": "e9_none"}
    bench.pools["large"] = {"plan": "amd-ryzen-9950x", "region": "LT-Siauliai"}
    for name in ("bad", "large", "good"):
        bench.bind(name, 0, 5)
    bad, large, good = bench.provider().observe(()).groups
    assert bad.template is None
    assert "e9_none" in bad.template_error + bad.error
    assert (good.template_error, large.template_error) == ("", "")
    assert large.template is not None
    assert (large.template.capacity["memory"], large.template.capacity["cpu"]) == (
        206158430208,
        16000,
    )
