"""The API of the emulated CCE: pages, refusals, error forms, faults and events."""

from __future__ import annotations

import pytest

from infra.emulators.huaweicloud.models import DEFAULT, CceDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.huaweicloud.test_cce_emulator import phases
from tests.providers.huaweicloud.wire import ProjectClient

# -- the API


def test_cce_emulator_lists_nodes_in_pages_or_all_at_once_in_old_regions(
    desk: ProjectClient,
) -> None:
    desk.cloud.add_pool(desk.cluster, "a", size=5)
    first = desk.ask("GET", "/nodes", query={"limit": "3"})
    assert first["pageInfo"].keys() == {"currentCount", "nextMarker"}
    rest = desk.ask(
        "GET", "/nodes", query={"limit": "3", "marker": first["pageInfo"]["nextMarker"]}
    )
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
    assert node["metadata"]["annotations"] == {
        "kubernetes.io/node-pool.id": "cn-north-4a#c7.xlarge.2#EulerOS"
    }
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
        (
            "POST",
            "/nodepools/POOL/operation/scale",
            {"spec": {"desiredNodeCount": 3, "scaleGroups": "default"}},
            400,
        ),
        (
            "POST",
            "/nodepools/POOL/operation/scale",
            {"spec": {"desiredNodeCount": 3, "scaleGroups": [["a"]]}},
            400,
        ),
        (
            "POST",
            "/nodepools/POOL/operation/scale",
            {
                "spec": {
                    "desiredNodeCount": 3,
                    "options": {"billingConfigOverride": {"billingMode": 1}},
                }
            },
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
    [
        ("cce", "errorCode", "errorMessage"),
        ("gateway", "error_code", "error_msg"),
        ("plain", "code", "message"),
    ],
)
def test_CCE_20_errors_have_three_forms(
    desk: ProjectClient, form: str, code: str, message: str
) -> None:
    desk.front.form = form
    reported = desk.ask("GET", "/nodes/x", status=404)
    assert reported[code] == "CCE.01404001"
    assert "not found" in reported[message]


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
    key.permissions = frozenset({"cce:nodepool:*"})
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
