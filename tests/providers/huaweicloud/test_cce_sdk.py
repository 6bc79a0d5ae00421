"""The vendor's own SDK drives the emulated project, which shows that the emulator
behaves as the SDK expects.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.models import SOLD_OUT
from infra.emulators.huaweicloud.server import HuaweiServer
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import Incoming
from tests.providers.huaweicloud.sdk import KEY, SECRET, Drive, Official, SdkClock, load


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Official:
    return load(str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def drive(official: Official) -> Iterator[Drive]:
    clock = SdkClock()
    server = HuaweiServer(CceCloud(clock))
    server.ring.add(KEY, SECRET)
    with server:
        yield Drive(server, clock, official)


def test_huawei_sdk_is_authenticated_and_reads_everything(drive: Drive) -> None:
    cloud, uid = drive.cloud, drive.cluster.uid
    pool = cloud.add_pool(
        uid,
        "pool-a",
        size=2,
        most=9,
        priority=4,
        cooldown=15,
        labels={"tier": "web"},
        taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}],
        extend={"maxPods": 40},
    )
    cloud.add_group(pool.uid, "c7-az2", size=1, least=1, most=6, priority=5)
    cloud.add_addon(uid, scaleDownEnabled=True, maxNodesTotal=50)
    (seen,) = drive.pools(advance_status=True)
    assert (seen.metadata.uid, seen.metadata.name, seen.spec.initial_node_count) == (
        pool.uid,
        "pool-a",
        3,
    )
    assert (
        seen.spec.autoscaling.max_node_count,
        seen.spec.autoscaling.scale_down_cooldown_time,
    ) == (9, 15)
    assert (seen.spec.node_template.flavor, seen.spec.node_template.k8s_tags["tier"]) == (
        "c7.xlarge.2",
        "web",
    )
    assert seen.spec.node_template.taints[0].effect == "NoSchedule"
    assert seen.spec.node_template.extend_param.max_pods == 40
    (extension,) = seen.spec.extension_scale_groups
    assert (extension.metadata.name, extension.spec.az) == ("c7-az2", "cn-north-4b")
    assert extension.spec.autoscaling.extension_priority == 5
    own, other = seen.status.scale_group_statuses
    assert (own.name, own.desired_node_count, own.existing_node_count.total) == ("default", 2, 2)
    assert (other.desired_node_count, other.upcoming_node_count.total) == (1, 0)
    assert (seen.status.current_node, seen.status.active_node, seen.status.phase) == (3, 3, "")
    assert [(each.type, each.status) for each in seen.status.conditions] == [("Scalable", "True")]
    assert [each.metadata.uid for each in drive.pools(show_default_node_pool="true")] == [
        pool.uid,
        "DefaultPool",
    ]
    node = drive.nodes().items[0]
    shown = drive.ask("show_node", "ShowNode", node_id=node.metadata.uid)
    assert shown.metadata.owner_references.nodepool_id == pool.uid
    assert (shown.status.phase, shown.status.private_ip) == ("Active", node.status.private_ip)
    (addon,) = drive.ask("list_addon_instances", "ListAddonInstances").items
    assert (addon.spec.addon_template_name, addon.spec.values["custom"]["maxNodesTotal"]) == (
        "autoscaler",
        50,
    )
    assert drive.ask("show_cluster", "ShowCluster").status.phase == "Available"
    assert {call.status for call in drive.server.log} == {200}


def test_huawei_sdk_scales_up_several_groups_and_scales_down_one(drive: Drive) -> None:
    pool = drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=4)
    other = drive.cloud.add_group(pool.uid, "az2")
    drive.scale(
        pool.uid, 6, "default", "az2", scale_policy="AZBalance", scalable_checking="instant"
    )
    assert (pool.groups["default"].desired, other.desired) == (4, 2)
    coming = [each for each in drive.nodes().items if each.status.phase == "Build"]
    assert len(coming) == 2
    job = drive.client.show_job(drive.official.cce.ShowJobRequest(job_id=coming[0].status.job_id))
    assert (job.status.phase, job.spec.resource_id) == ("Running", coming[0].metadata.uid)
    assert drive.pool(pool.uid).status.creating_node == 2
    drive.after(90.0)
    assert drive.pool(pool.uid).status.active_node == 6
    drive.scale(pool.uid, 5, "default")
    assert (pool.groups["default"].desired, other.desired) == (3, 2)
    assert drive.pool(pool.uid).status.deleting_node == 1
    assert drive.refused(lambda: drive.scale(pool.uid, 3, "default", "az2")).status_code == 400


def test_huawei_sdk_node_deletion_lowers_the_desired_size(drive: Drive) -> None:
    pool = drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=2)
    first, second = (each.metadata.uid for each in drive.nodes().items)
    gone = drive.ask("delete_node", "DeleteNode", node_id=first)
    assert gone.status.phase == "Deleting"
    assert (
        drive.client.show_job(
            drive.official.cce.ShowJobRequest(job_id=gone.status.job_id)
        ).spec.type
        == "DeleteNode"
    )
    assert pool.desired == 1
    drive.after(60.0)
    assert (
        drive.refused(lambda: drive.ask("show_node", "ShowNode", node_id=first)).status_code == 404
    )
    drive.ask("delete_node", "DeleteNode", node_id=second, nodepool_scale_down="NoScaleDown")
    drive.after(200.0)
    (replacement,) = drive.nodes().items
    assert (pool.desired, replacement.metadata.uid not in (first, second)) == (1, True)


def test_CCE_DANGER_1_sdk_scaling_without_a_number_empties_the_pool(drive: Drive) -> None:
    pool = drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=3)
    drive.cloud.add_group(pool.uid, "az2", size=2)
    drive.scale(pool.uid, None, "default")
    assert (pool.desired, {each.status.phase for each in drive.nodes().items}) == (0, {"Deleting"})


def test_CCE_DANGER_2_sdk_update_without_the_guard_empties_the_pool(drive: Drive) -> None:
    pool = drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=3)
    scaling = drive.official.cce.NodePoolNodeAutoscaling(
        enable=True, min_node_count=0, max_node_count=7
    )
    drive.update(pool.uid, ignore_initial_node_count=True, autoscaling=scaling)
    assert (pool.desired, pool.most, pool.name) == (3, 7, "renamed")
    drive.update(pool.uid, autoscaling=scaling)
    assert (pool.desired, {each.status.phase for each in drive.nodes().items}) == (0, {"Deleting"})


def test_CCE_DANGER_3_smaller_total_removes_arbitrary_unprotected_nodes(drive: Drive) -> None:
    pool = drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=20)
    uids = [each.metadata.uid for each in drive.nodes().items]
    cce = drive.official.cce
    drive.client.lock_nodepool_node_scale_down(
        cce.LockNodepoolNodeScaleDownRequest(
            cluster_id=drive.cluster.uid,
            body=cce.LockNodeScaledownRequestBody("v3", "List", uids[:5]),
        )
    )
    assert drive.pool(pool.uid).status.scale_group_statuses[0].scale_down_disabled_node_count == 5
    drive.scale(pool.uid, 8, "default")
    leaving = [each.metadata.uid for each in drive.nodes().items if each.status.phase == "Deleting"]
    assert len(leaving) == 12
    assert leaving not in (uids[:12], uids[-12:])
    assert not set(leaving) & set(uids[:5])


def test_huawei_sdk_pages_through_nodes(drive: Drive) -> None:
    drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=5)
    seen, marker = [], None
    while True:
        page = drive.nodes(limit=2, marker=marker)
        seen += [each.metadata.uid for each in page.items]
        marker = page.page_info.next_marker
        if not marker:
            break
    assert len(set(seen)) == 5
    assert [call.status for call in drive.server.log] == [200] * 3
    drive.cloud.paged = False
    old = drive.nodes(limit=2)
    assert (len(old.items), old.page_info) == (5, None)


def test_huawei_sdk_reads_sold_out_flavours(drive: Drive) -> None:
    pool = drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=1)
    drive.cloud.spoil(pool.uid, SOLD_OUT, 2)
    drive.scale(pool.uid, 3, "default")
    drive.after(20.0)
    seen = drive.pool(pool.uid).status
    assert {each.type: each.status for each in seen.conditions} == {
        "Scalable": "False",
        "ResourceInsufficient": "True",
    }
    assert (seen.phase, seen.scale_group_statuses[0].upcoming_node_count.total) == ("SoldOut", 2)
    refused = drive.refused(lambda: drive.scale(pool.uid, 4, "default"))
    assert (refused.status_code, refused.error_code) == (400, "CCE.01400021")
    drive.scale(pool.uid, 4, "default", scalable_checking="async")
    assert pool.desired == 4


def test_huawei_sdk_raises_its_own_errors(drive: Drive) -> None:
    pool = drive.cloud.add_pool(drive.cluster.uid, "pool-a", size=1)
    missing = drive.refused(lambda: drive.pool(pool.uid[:-1] + "9"))
    assert (missing.status_code, missing.error_code) == (404, "CCE.01404001")
    assert missing.request_id
    wrong = drive.client_for(KEY, "another-secret")
    refused = drive.refused(lambda: drive.ask("list_nodes", "ListNodes", wrong))
    assert (refused.status_code, refused.error_code) == (401, "APIGW.0301")
    drive.server.ring.add(
        "AKIDEXAMPLE00000READ", SECRET, frozenset({"cce:node:list", "cce:nodepool:get"})
    )
    narrow = drive.client_for("AKIDEXAMPLE00000READ", SECRET)
    drive.ask("list_nodes", "ListNodes", narrow)
    forbidden = drive.refused(lambda: drive.scale(pool.uid, 2, "default", client=narrow))
    assert (forbidden.status_code, forbidden.error_code, pool.desired) == (403, "CCE.01403001", 1)
    for form, code in (("cce", "CCE.01409002"), ("gateway", "CCE.01409002"), ("plain", None)):
        drive.server.front.form = form
        drive.server.faults.next(VendorFault.CONFLICT)
        met = drive.refused(drive.nodes)
        assert (met.error_code, "another change is running" in met.error_msg) == (code, True)
    drive.server.front.form = ""
    drive.server.faults.next(VendorFault.SERVER_ERROR)
    with pytest.raises(drive.official.errors.ServerResponseException) as broken:
        drive.nodes()
    assert broken.value.status_code == 500
    drive.clock.passed += 901.0
    assert drive.refused(drive.nodes).error_code == "APIGW.0303"


def test_huawei_sdk_authenticates_with_temporary_keys(drive: Drive) -> None:
    ring = drive.server.ring
    session = ring.session(None, drive.clock() + 900.0)
    client = drive.client_for(session.id, session.secret, session.token)
    drive.ask("list_nodes", "ListNodes", client)
    stolen = drive.client_for(session.id, session.secret, "another-token")
    assert (
        drive.refused(lambda: drive.ask("list_nodes", "ListNodes", stolen)).error_code
        == "APIGW.0301"
    )
    session.expires = drive.clock() - 1.0
    assert drive.refused(lambda: drive.ask("list_nodes", "ListNodes", client)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        (
            "GET",
            "/api/v3/projects/p/clusters/c/nodes",
            [("marker", "a b/c~"), ("limit", "200")],
            "",
        ),
        ("GET", "/api/v3/addons", [("x", ""), ("cluster_id", "ü&=+"), ("x", "1")], ""),
        ("DELETE", "/api/v3/projects/p/clusters/c/nodes/n%20m", [], ""),
        (
            "POST",
            "/api/v3/projects/p/clusters/c/nodepools/n/operation/scale",
            [],
            '{"spec": {"desiredNodeCount": 3}}',
        ),
    ],
)
def test_CCE_17_sdk_signatures_are_accepted_by_the_emulator(
    official: Official, method: str, path: str, query: list[tuple[str, str]], body: str
) -> None:
    from infra.emulators.huaweicloud.signing import claim, signature

    request = official.request(
        method=method,
        schema="https",
        host="cce.example.com",
        resource_path=path,
        uri="",
        query_params=query,
        header_params={"X-Sdk-Date": "20260102T030405Z", "Content-Type": "application/json"},
        body=body,
    )
    signed = official.signer(official.credentials(KEY, SECRET, "p")).sign(request)
    headers = {name.lower(): value for name, value in signed.header_params.items()}
    incoming = Incoming(method, signed.uri, headers, body.encode())
    claimed = claim(incoming)
    assert claimed is not None
    assert claimed.signature == signature(incoming, claimed.signed, SECRET)
