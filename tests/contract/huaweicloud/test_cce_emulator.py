"""The emulated CCE behaves as the vendor documents, above all in dangerous calls."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.huaweicloud.models import DEFAULT, NO_QUOTA, NOT_INSTALLED, SOLD_OUT, CceDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.contract.huaweicloud.fixtures import ProjectClient


def conditions(desk: ProjectClient, uid: str, group: str = DEFAULT) -> dict[str, str]:
    status = next(each for each in desk.pool(uid)["status"]["scaleGroupStatuses"] if each["name"] == group)
    return {each["type"]: each["status"] for each in status["conditions"]}


def phases(desk: ProjectClient) -> list[str]:
    return sorted(each["status"]["phase"] for each in desk.nodes())


# -- sizes


@pytest.mark.parametrize("form", ["missing", "zero", "several"])
def test_CCE_DANGER_1_missing_total_means_zero_and_deletes_every_node(desk: ProjectClient, form: str) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.cloud.add_group(pool.uid, "az2", size=2)
    total: dict[str, Any] = {} if form != "zero" else {"desiredNodeCount": 0}
    groups = ["default"] if form != "several" else ["az2"]
    desk.ask("POST", f"/nodepools/{pool.uid}/operation/scale", {"spec": {**total, "scaleGroups": groups}})
    assert (pool.desired, phases(desk)) == (0, ["Deleting"] * 5)
    desk.after(60.0)
    assert desk.nodes() == []


def test_CCE_DANGER_1_total_applies_to_the_pool_and_not_the_group(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    group = desk.cloud.add_group(pool.uid, "az2", size=1)
    desk.scale(pool.uid, 6, "az2")
    assert (pool.groups[DEFAULT].desired, group.desired) == (3, 3)
    desk.scale(pool.uid, 4, "default")
    assert (pool.groups[DEFAULT].desired, group.desired) == (1, 3)


@pytest.mark.parametrize(
    "spec",
    [{}, {"autoscaling": {"enable": True}}, {"ignoreInitialNodeCount": False}, {"ignoreInitialNodeCount": "true"}],
)
def test_CCE_DANGER_2_update_without_the_guard_empties_the_pool(desk: ProjectClient, spec: dict[str, Any]) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.ask("PUT", f"/nodepools/{pool.uid}", {"metadata": {"name": "a"}, "spec": spec})
    assert (pool.desired, phases(desk)) == (0, ["Deleting"] * 3)


def test_CCE_DANGER_2_guarded_update_changes_named_fields_and_whole_group_lists(
    desk: ProjectClient,
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.cloud.add_group(pool.uid, "az2", size=2)
    guarded = {"ignoreInitialNodeCount": True}
    told = desk.ask(
        "PUT",
        f"/nodepools/{pool.uid}",
        {
            "metadata": {"name": "b"},
            "spec": {**guarded, "autoscaling": {"enable": False, "minNodeCount": 2, "maxNodeCount": 8}},
        },
    )
    assert (told["metadata"]["name"], told["spec"]["autoscaling"]["maxNodeCount"], pool.desired) == ("b", 8, 5)
    desk.ask("PUT", f"/nodepools/{pool.uid}", {"spec": guarded}, status=400)
    desk.ask(
        "PUT",
        f"/nodepools/{pool.uid}",
        {"metadata": {"name": "a"}, "spec": {**guarded, "autoscaling": {"minNodeCount": 9}}},
        status=400,
    )
    desk.ask("PUT", f"/nodepools/{pool.uid}", {"metadata": {"name": "b"}, "spec": {"initialNodeCount": 6}})
    assert (pool.desired, pool.groups[DEFAULT].desired) == (6, 4)
    desk.ask(
        "PUT", f"/nodepools/{pool.uid}", {"metadata": {"name": "b"}, "spec": {**guarded, "extensionScaleGroups": []}}
    )
    assert (list(pool.groups), pool.desired) == ([DEFAULT], 4)


def test_CCE_DANGER_3_deletion_is_replaced_if_told_not_to_lower_the_size(
    desk: ProjectClient,
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    first, second, _ = pool.groups[DEFAULT].nodes
    gone = desk.ask("DELETE", f"/nodes/{first}")
    again = desk.ask("DELETE", f"/nodes/{first}")
    assert (gone["status"]["phase"], again["status"]["jobID"], pool.desired) == ("Deleting", gone["status"]["jobID"], 2)
    desk.ask("DELETE", f"/nodes/{second}", query={"nodepoolScaleDown": "NoScaleDown"})
    assert pool.desired == 2
    desk.after(150.0)
    assert [each["status"]["phase"] for each in desk.nodes()] == ["Active", "Active"]
    assert second not in pool.groups[DEFAULT].nodes
    desk.ask("DELETE", f"/nodes/{first}", status=404)
    desk.ask("DELETE", f"/nodes/{second}", query={"nodepoolScaleDown": "no"}, status=400)


def test_cce_emulator_several_groups_grow_in_balance_and_only_one_shrinks(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=4)
    group = desk.cloud.add_group(pool.uid, "az2", size=1)
    desk.scale(pool.uid, 8, "default", "az2", scalePolicy="AZBalance")
    assert (pool.groups[DEFAULT].desired, group.desired) == (4, 4)
    desk.scale(pool.uid, 16, "default", "az2")
    assert pool.desired == 16
    desk.scale(pool.uid, 9, "default", "az2", status=400)
    desk.scale(pool.uid, 1, "az2", status=400)
    desk.scale(pool.uid, 16, "az3", status=400)
    assert pool.desired == 16


def test_cce_emulator_smaller_total_drops_missing_first_and_keeps_protected(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.cloud.spoil(pool.uid, SOLD_OUT, 2)
    desk.scale(pool.uid, 5, DEFAULT)
    desk.scale(pool.uid, 3, DEFAULT)
    assert phases(desk) == ["Active"] * 3
    uids = list(pool.groups[DEFAULT].nodes)
    desk.ask("POST", "/nodes/locknodescaledown", {"kind": "List", "apiVersion": "v3", "nodeList": uids[:2]})
    status = desk.pool(pool.uid)["status"]["scaleGroupStatuses"][0]
    assert status["scaleDownDisabledNodeCount"] == 2
    desk.scale(pool.uid, 0, DEFAULT)
    assert sorted(each.uid for each in pool.groups[DEFAULT].staying) == uids[:2]
    desk.ask("POST", "/nodes/unlocknodescaledown", {"nodeList": uids[:2]})
    desk.ask("POST", "/nodes/locknodescaledown", {"nodeList": ["nobody"]}, status=400)
    assert not any(node.protected for node in desk.cloud.running())


def test_cce_emulator_manual_scaling_ignores_the_maximum(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=1, most=2)
    desk.scale(pool.uid, 5, DEFAULT)
    assert pool.desired == 5


# -- creation failures


def test_cce_emulator_node_creation_takes_time_and_is_counted_at_each_stage(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=1)
    desk.scale(pool.uid, 2, DEFAULT)
    told = []
    for _ in range(3):
        status = desk.pool(pool.uid)["status"]
        group = status["scaleGroupStatuses"][0]
        told.append(
            (
                phases(desk)[1],
                status["currentNode"],
                status["creatingNode"],
                status["phase"],
                group["existingNodeCount"]["total"],
                group["upcomingNodeCount"]["total"],
            )
        )
        desk.after(40.0)
    assert told == [
        ("Build", 1, 1, "Synchronizing", 1, 1),
        ("Installing", 1, 1, "Synchronizing", 1, 1),
        ("Active", 2, 0, "", 2, 0),
    ]
    desk.cloud.counts_coming = True
    desk.scale(pool.uid, 3, DEFAULT)
    assert desk.pool(pool.uid)["status"]["currentNode"] == 3
    building = next(each for each in desk.nodes() if each["status"]["phase"] == "Build")
    assert "serverId" not in building["status"]


def test_CCE_11_sold_out_state_is_learnt_by_a_request_and_forgotten_with_new_stock(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=1)
    desk.cloud.sell_out("c7.xlarge.2", "cn-north-4a")
    assert conditions(desk, pool.uid) == {"Scalable": "True"}
    desk.scale(pool.uid, 2, DEFAULT)
    assert conditions(desk, pool.uid) == {"Scalable": "True"}
    desk.after(20.0)
    assert conditions(desk, pool.uid) == {"Scalable": "False", "ResourceInsufficient": "True"}
    refused = desk.scale(pool.uid, 3, DEFAULT, status=400)
    assert refused["errorCode"] == "CCE.01400021"
    assert desk.pool(pool.uid)["status"]["phase"] == "SoldOut"
    desk.after(300.0)
    assert "ResourceInsufficient" in conditions(desk, pool.uid)
    desk.cloud.restock("c7.xlarge.2", "cn-north-4a")
    desk.after(300.0)
    assert (conditions(desk, pool.uid), phases(desk)) == ({"Scalable": "True"}, ["Active", "Active"])


def test_cce_emulator_refuses_a_known_sold_out_flavour_unless_checked_later(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=1)
    desk.cloud.add_group(pool.uid, "az2")
    desk.cloud.sell_out("c7.xlarge.2", "cn-north-4a", known=True, hinted=True)
    desk.scale(pool.uid, 2, DEFAULT, status=400)
    desk.scale(pool.uid, 2, DEFAULT, "az2", status=400)
    desk.scale(pool.uid, 2, "az2")
    desk.scale(pool.uid, 3, DEFAULT, scalableChecking="async")
    assert pool.desired == 3
    flavor = next(
        each
        for each in desk.ask("GET", f"//v1/{desk.cloud.project}/cloudservers/flavors")["flavors"]
        if each["id"] == "c7.xlarge.2"
    )
    assert flavor["os_extra_specs"]["cond:operation:az"] == (
        "cn-north-4a(sellout), cn-north-4b(normal), cn-north-4c(normal)"
    )
    assert {each["type"] for each in desk.pool(pool.uid)["status"]["conditions"]} == {
        "Scalable",
        "ResourceInsufficient",
    }
    own = desk.ask("GET", "/nodepools")["items"][0]["status"]["conditions"]
    assert {each["type"]: each["status"] for each in own} == {"Scalable": "False", "ResourceInsufficient": "True"}


@pytest.mark.parametrize("at_once", [True, False])
def test_cce_emulator_reports_quota_at_once_or_by_a_condition(desk: ProjectClient, at_once: bool) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=2)
    desk.cloud.limit, desk.cloud.refuses_quota = 3, at_once
    if at_once:
        assert desk.scale(pool.uid, 4, DEFAULT, status=400)["errorCode"] == "CCE.01400008"
        assert pool.desired == 2
        return
    desk.scale(pool.uid, 4, DEFAULT)
    desk.after(20.0)
    assert conditions(desk, pool.uid) == {"Scalable": "False", "QuotaInsufficient": "True"}
    assert phases(desk) == ["Active", "Active", "Build"]
    desk.scale(pool.uid, 3, DEFAULT)
    desk.after(300.0)
    assert conditions(desk, pool.uid) == {"Scalable": "True"}


def test_cce_emulator_node_with_failed_installation_has_an_error_and_a_job_reason(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a")
    desk.cloud.spoil(pool.uid, NOT_INSTALLED)
    desk.scale(pool.uid, 1, DEFAULT)
    job = desk.nodes()[0]["status"]["jobID"]
    path = f"//api/v3/projects/{desk.cloud.project}/jobs/{job}"
    assert desk.ask("GET", path)["status"]["phase"] == "Running"
    desk.after(90.0)
    assert phases(desk) == ["Error"]
    assert conditions(desk, pool.uid) == {"Scalable": "True", "UnexpectedError": "True"}
    assert desk.ask("GET", path)["status"] == {"phase": "Failed", "reason": "Failed to install the node."}
    desk.ask("DELETE", f"/nodes/{desk.nodes()[0]['metadata']['uid']}")
    desk.after(3700.0)
    assert (pool.desired, desk.nodes()) == (0, [])
    desk.ask("GET", path, status=404)


def test_cce_emulator_without_retry_missing_nodes_stay_missing(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a")
    desk.cloud.retries = False
    desk.cloud.spoil(pool.uid, NO_QUOTA)
    desk.scale(pool.uid, 1, DEFAULT)
    desk.after(3600.0)
    assert (desk.nodes(), conditions(desk, pool.uid)["Scalable"]) == ([], "False")


# -- the API


def test_cce_emulator_lists_nodes_in_pages_or_all_at_once_in_old_regions(desk: ProjectClient) -> None:
    desk.cloud.add_pool(desk.cluster, "a", size=5)
    first = desk.ask("GET", "/nodes", query={"limit": "3"})
    assert first["pageInfo"].keys() == {"currentCount", "nextMarker"}
    rest = desk.ask("GET", "/nodes", query={"limit": "3", "marker": first["pageInfo"]["nextMarker"]})
    assert rest["pageInfo"] == {"currentCount": 2}
    assert len({each["metadata"]["uid"] for each in first["items"] + rest["items"]}) == 5
    for wrong in ({"limit": "0"}, {"limit": "2001"}, {"limit": "x"}, {"marker": "nobody"}):
        desk.ask("GET", "/nodes", query=wrong, status=400)
    desk.cloud.paged = False
    old = desk.ask("GET", "/nodes", query={"limit": "3"})
    assert (len(old["items"]), "pageInfo" in old) == (5, False)


def test_cce_emulator_nodes_without_a_pool_show_zone_and_flavour(desk: ProjectClient) -> None:
    desk.cloud.add_lonely(desk.cluster)
    (node,) = desk.nodes()
    assert node["metadata"]["annotations"] == {"kubernetes.io/node-pool.id": "cn-north-4a#c7.xlarge.2#EulerOS"}
    assert "ownerReferences" not in node["metadata"]
    listed = desk.ask("GET", "/nodepools", query={"showDefaultNodePool": "true"})["items"]
    assert [each["metadata"]["uid"] for each in listed] == ["DefaultPool"]
    assert desk.ask("GET", "/nodepools")["items"] == []


def test_cce_emulator_order_may_lock_its_pool_for_a_while(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=2)
    desk.cloud.holds = 10.0
    desk.scale(pool.uid, 3, DEFAULT)
    refused = desk.ask("DELETE", f"/nodes/{next(iter(pool.groups[DEFAULT].nodes))}", status=429)
    assert refused["errorCode"] == "CCE.01429002"
    desk.scale(pool.uid, 4, DEFAULT, status=429)
    desk.after(10.0)
    desk.scale(pool.uid, 4, DEFAULT)


@pytest.mark.parametrize("phase", ["Unavailable", "Creating", "Upgrading", "Hibernation"])
def test_cce_emulator_unavailable_cluster_refuses_orders(desk: ProjectClient, phase: str) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=2)
    desk.cloud.clusters[desk.cluster].phase = phase
    assert desk.ask("GET", "")["status"]["phase"] == phase
    desk.scale(pool.uid, 3, DEFAULT, status=400)
    desk.ask("DELETE", f"/nodes/{next(iter(pool.groups[DEFAULT].nodes))}", status=400)
    desk.ask("PUT", f"/nodepools/{pool.uid}", {"metadata": {"name": "a"}, "spec": {}}, status=400)
    assert pool.desired == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nodepools/x", None, 404),
        ("GET", "/nodes/x", None, 404),
        ("GET", "/nothing", None, 404),
        ("GET", "//api/v3/projects/other/clusters/x/nodes", None, 404),
        ("DELETE", "/nodepools/POOL", None, 404),
        ("POST", "/nodepools/POOL/operation/scale", b"", 400),
        ("POST", "/nodepools/POOL/operation/scale", [1], 400),
        ("POST", "/nodepools/POOL/operation/scale", {}, 400),
        ("POST", "/nodepools/POOL/operation/scale", {"spec": {"desiredNodeCount": -1}}, 400),
        ("POST", "/nodepools/POOL/operation/scale", {"spec": {"desiredNodeCount": "3"}}, 400),
        ("POST", "/nodepools/POOL/operation/scale", {"spec": {"desiredNodeCount": True}}, 400),
        ("POST", "/nodepools/POOL/operation/scale", {"spec": {"desiredNodeCount": 3, "scaleGroups": "default"}}, 400),
        ("POST", "/nodepools/POOL/operation/scale", {"spec": {"desiredNodeCount": 3, "scaleGroups": [["a"]]}}, 400),
        (
            "POST",
            "/nodepools/POOL/operation/scale",
            {"spec": {"desiredNodeCount": 3, "options": {"billingConfigOverride": {"billingMode": 1}}}},
            400,
        ),
        ("POST", "/nodepools/DefaultPool/operation/scale", {"spec": {"desiredNodeCount": 3}}, 400),
        ("POST", "/nodes/locknodescaledown", {}, 400),
        ("GET", "//api/v3/addons", None, 404),
        ("GET", "//api/v3/projects/0123456789abcdef0123456789abcdef/clusters/x/nodes", None, 400),
    ],
)
def test_cce_emulator_refuses_invalid_requests_without_a_change(
    desk: ProjectClient, method: str, path: str, body: object, status: int
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=2)
    desk.ask(method, path.replace("POOL", pool.uid), body, status=status)
    assert (pool.desired, phases(desk)) == (2, ["Active", "Active"])


@pytest.mark.parametrize(
    ("form", "code", "message"),
    [("cce", "errorCode", "errorMessage"), ("gateway", "error_code", "error_msg"), ("plain", "code", "message")],
)
def test_CCE_20_errors_have_three_forms(desk: ProjectClient, form: str, code: str, message: str) -> None:
    desk.front.form = form
    told = desk.ask("GET", "/nodes/x", status=404)
    assert told[code] == "CCE.01404001"
    assert "not found" in told[message]


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (VendorFault.UNAUTHORIZED, 401, "CCE.01401001"),
        (VendorFault.FORBIDDEN, 403, "CCE.01403001"),
        (VendorFault.NOT_FOUND, 404, "CCE.01404001"),
        (VendorFault.CONFLICT, 409, "CCE.01409002"),
        (VendorFault.THROTTLED, 429, "CCE.02429001"),
        (VendorFault.SERVER_ERROR, 500, "CCE.01500001"),
    ],
)
def test_cce_emulator_faults_have_the_vendors_codes(
    desk: ProjectClient, fault: VendorFault, status: int, code: str
) -> None:
    desk.front.faults.next(fault)
    assert desk.ask("GET", "/nodes", status=status)["errorCode"] == code
    desk.ask("GET", "/nodes")


def test_cce_emulator_throttles_frequent_requests(desk: ProjectClient) -> None:
    desk.front.throttle.limits["list-nodes"], desk.front.throttle.tells = (2, 10.0), True
    for _ in range(2):
        desk.ask("GET", "/nodes")
    answer = desk.send("GET", "/nodes")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "10")
    desk.after(10.0)
    desk.ask("GET", "/nodes")


def test_cce_emulator_names_a_missing_permission(desk: ProjectClient) -> None:
    key = desk.front.ring.keys["AKIDEXAMPLE00000DESK"]
    key.actions = frozenset({"cce:nodepool:*"})
    desk.ask("GET", "/nodepools")
    assert "cce:node:list" in desk.ask("GET", "/nodes", status=403)["errorMessage"]
    assert [(call.action, call.status) for call in desk.front.log] == [
        ("cce:nodepool:list", 200),
        ("cce:node:list", 403),
    ]


def test_cce_emulator_lost_orders_have_no_effect_and_lost_answers_do(desk: ProjectClient) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=1)
    spec = {"spec": {"desiredNodeCount": 2, "scaleGroups": ["default"]}}
    for fault, size in ((VendorFault.HANGS_UP, 1), (VendorFault.LOST_ANSWER, 2)):
        desk.front.faults.next(fault)
        assert desk.send("POST", f"/nodepools/{pool.uid}/operation/scale", spec).hang_up
        assert pool.desired == size


def test_cce_emulator_events_happen_at_their_own_time_however_late_the_query() -> None:
    desk = ProjectClient(CceDurations(build=100.0, install=50.0))
    pool = desk.cloud.add_pool(desk.cluster, "a")
    desk.scale(pool.uid, 1, DEFAULT)
    desk.after(100_000.0)
    (node,) = pool.groups[DEFAULT].nodes.values()
    assert node.since - node.created == 150.0
