"""The emulated CCE behaves as the vendor documents, above all in dangerous calls."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.huaweicloud.models import DEFAULT, NO_QUOTA, NOT_INSTALLED, SOLD_OUT
from tests.providers.huaweicloud.wire import ProjectClient


def conditions(desk: ProjectClient, uid: str, group: str = DEFAULT) -> dict[str, str]:
    status = next(
        each for each in desk.pool(uid)["status"]["scaleGroupStatuses"] if each["name"] == group
    )
    return {each["type"]: each["status"] for each in status["conditions"]}


def phases(desk: ProjectClient) -> list[str]:
    return sorted(each["status"]["phase"] for each in desk.nodes())


# -- sizes


@pytest.mark.parametrize("form", ["missing", "zero", "several"])
def test_CCE_DANGER_1_missing_total_means_zero_and_deletes_every_node(
    desk: ProjectClient, form: str
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.cloud.add_group(pool.uid, "az2", size=2)
    total: dict[str, Any] = {} if form != "zero" else {"desiredNodeCount": 0}
    groups = ["default"] if form != "several" else ["az2"]
    desk.ask(
        "POST", f"/nodepools/{pool.uid}/operation/scale", {"spec": {**total, "scaleGroups": groups}}
    )
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
    [
        {},
        {"autoscaling": {"enable": True}},
        {"ignoreInitialNodeCount": False},
        {"ignoreInitialNodeCount": "true"},
    ],
)
def test_CCE_DANGER_2_update_without_the_guard_empties_the_pool(
    desk: ProjectClient, spec: dict[str, Any]
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.ask("PUT", f"/nodepools/{pool.uid}", {"metadata": {"name": "a"}, "spec": spec})
    assert (pool.desired, phases(desk)) == (0, ["Deleting"] * 3)


def test_CCE_DANGER_2_guarded_update_changes_named_fields_and_whole_group_lists(
    desk: ProjectClient,
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.cloud.add_group(pool.uid, "az2", size=2)
    guarded = {"ignoreInitialNodeCount": True}
    reported = desk.ask(
        "PUT",
        f"/nodepools/{pool.uid}",
        {
            "metadata": {"name": "b"},
            "spec": {
                **guarded,
                "autoscaling": {"enable": False, "minNodeCount": 2, "maxNodeCount": 8},
            },
        },
    )
    assert (
        reported["metadata"]["name"],
        reported["spec"]["autoscaling"]["maxNodeCount"],
        pool.desired,
    ) == ("b", 8, 5)
    desk.ask("PUT", f"/nodepools/{pool.uid}", {"spec": guarded}, status=400)
    desk.ask(
        "PUT",
        f"/nodepools/{pool.uid}",
        {"metadata": {"name": "a"}, "spec": {**guarded, "autoscaling": {"minNodeCount": 9}}},
        status=400,
    )
    desk.ask(
        "PUT",
        f"/nodepools/{pool.uid}",
        {"metadata": {"name": "b"}, "spec": {"initialNodeCount": 6}},
    )
    assert (pool.desired, pool.groups[DEFAULT].desired) == (6, 4)
    desk.ask(
        "PUT",
        f"/nodepools/{pool.uid}",
        {"metadata": {"name": "b"}, "spec": {**guarded, "extensionScaleGroups": []}},
    )
    assert (list(pool.groups), pool.desired) == ([DEFAULT], 4)


def test_CCE_DANGER_3_deletion_without_a_lower_size_is_replaced(
    desk: ProjectClient,
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    first, second, _ = pool.groups[DEFAULT].nodes
    gone = desk.ask("DELETE", f"/nodes/{first}")
    again = desk.ask("DELETE", f"/nodes/{first}")
    assert (gone["status"]["phase"], again["status"]["jobID"], pool.desired) == (
        "Deleting",
        gone["status"]["jobID"],
        2,
    )
    desk.ask("DELETE", f"/nodes/{second}", query={"nodepoolScaleDown": "NoScaleDown"})
    assert pool.desired == 2
    desk.after(150.0)
    assert [each["status"]["phase"] for each in desk.nodes()] == ["Active", "Active"]
    assert second not in pool.groups[DEFAULT].nodes
    desk.ask("DELETE", f"/nodes/{first}", status=404)
    desk.ask("DELETE", f"/nodes/{second}", query={"nodepoolScaleDown": "no"}, status=400)


def test_cce_emulator_scales_up_several_groups_in_balance_and_scales_down_one(
    desk: ProjectClient,
) -> None:
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


def test_cce_emulator_smaller_total_drops_missing_first_and_keeps_protected(
    desk: ProjectClient,
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=3)
    desk.cloud.spoil(pool.uid, SOLD_OUT, 2)
    desk.scale(pool.uid, 5, DEFAULT)
    desk.scale(pool.uid, 3, DEFAULT)
    assert phases(desk) == ["Active"] * 3
    uids = list(pool.groups[DEFAULT].nodes)
    desk.ask(
        "POST",
        "/nodes/locknodescaledown",
        {"kind": "List", "apiVersion": "v3", "nodeList": uids[:2]},
    )
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


def test_cce_emulator_node_creation_takes_time_and_is_counted_at_each_stage(
    desk: ProjectClient,
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a", size=1)
    desk.scale(pool.uid, 2, DEFAULT)
    reported = []
    for _ in range(3):
        status = desk.pool(pool.uid)["status"]
        group = status["scaleGroupStatuses"][0]
        reported.append(
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
    assert reported == [
        ("Build", 1, 1, "Synchronizing", 1, 1),
        ("Installing", 1, 1, "Synchronizing", 1, 1),
        ("Active", 2, 0, "", 2, 0),
    ]
    desk.cloud.counts_coming = True
    desk.scale(pool.uid, 3, DEFAULT)
    assert desk.pool(pool.uid)["status"]["currentNode"] == 3
    building = next(each for each in desk.nodes() if each["status"]["phase"] == "Build")
    assert "serverId" not in building["status"]


def test_CCE_11_sold_out_state_is_learnt_by_a_request_and_forgotten_with_new_stock(
    desk: ProjectClient,
) -> None:
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
    assert (conditions(desk, pool.uid), phases(desk)) == (
        {"Scalable": "True"},
        ["Active", "Active"],
    )


def test_cce_emulator_refuses_a_known_sold_out_flavour_unless_checked_later(
    desk: ProjectClient,
) -> None:
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
    assert {each["type"]: each["status"] for each in own} == {
        "Scalable": "False",
        "ResourceInsufficient": "True",
    }


@pytest.mark.parametrize("at_once", [True, False])
def test_cce_emulator_reports_quota_at_once_or_by_a_condition(
    desk: ProjectClient, at_once: bool
) -> None:
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


def test_cce_emulator_node_with_failed_installation_has_an_error_and_a_job_reason(
    desk: ProjectClient,
) -> None:
    pool = desk.cloud.add_pool(desk.cluster, "a")
    desk.cloud.spoil(pool.uid, NOT_INSTALLED)
    desk.scale(pool.uid, 1, DEFAULT)
    job = desk.nodes()[0]["status"]["jobID"]
    path = f"//api/v3/projects/{desk.cloud.project}/jobs/{job}"
    assert desk.ask("GET", path)["status"]["phase"] == "Running"
    desk.after(90.0)
    assert phases(desk) == ["Error"]
    assert conditions(desk, pool.uid) == {"Scalable": "True", "UnexpectedError": "True"}
    assert desk.ask("GET", path)["status"] == {
        "phase": "Failed",
        "reason": "Failed to install the node.",
    }
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
