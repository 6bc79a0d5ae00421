"""The status ConfigMap in upstream's schema (docs/events.md "Status ConfigMap")."""

from __future__ import annotations

import re
from typing import Any

import yaml

from chalicelib.cluster.errors import Forbidden
from chalicelib.journal.status_configmap import (
    ANNOTATION,
    EVERY,
    document,
    long_time,
    parse,
    render,
    shortened,
)
from chalicelib.model.plan import GroupVerdict, Health, Plan
from chalicelib.model.reason import Reason, ReasonCode
from tests.cases import each_row
from tests.unit.journal.support import NOW, RecordFixture, plan

NAME = "cluster-autoscaler-status"
BACKOFF = Reason(
    ReasonCode.GROUP_BACKOFF, {"until": NOW + 60, "error": "no machines left", "code": "NoStock"}
)
COUNTS = {"ready": 3, "unready": 1, "notStarted": 1, "suspended": 0, "beingDeleted": 2}


def group(name: str = "g", **parts: Any) -> GroupVerdict:
    return GroupVerdict(
        **{
            "group": name,
            "provider": "clusterapi",
            "min": 1,
            "max": 9,
            "target": 7,
            "counts": COUNTS,
            "unregistered": 1,
            "long_unregistered": 2,
            **parts,
        }
    )


def decided(at: float = NOW, **parts: Any) -> Plan:
    health = Health(
        registered=7,
        ready=3,
        unready=1,
        not_started=1,
        being_deleted=2,
        unregistered=1,
        long_unregistered=2,
        resource_unready=1,
    )
    return plan(at, **{"health": health, "groups": (group(),), "unneeded": ("n1", "n2"), **parts})


def stored(scene: RecordFixture) -> Any:
    return yaml.load(scene.wall.maps[NAME]["data"]["status"], Loader=yaml.BaseLoader)


def test_status_complete_document_equals_upstreams() -> None:
    scene = RecordFixture()
    scene.passes(decided(groups=(group(candidates=2, backoff=BACKOFF),)))
    probe = {"lastProbeTime": "2026-11-21T07:20:54Z", "lastTransitionTime": "2026-11-21T07:20:54Z"}
    counts = {
        "registered": {
            "total": "7",
            "ready": "3",
            "notStarted": "1",
            "suspended": "0",
            "beingDeleted": "2",
            "unready": {"total": "1", "resourceUnready": "0"},
        },
        "longUnregistered": "2",
        "unregistered": "1",
    }
    everywhere = counts | {
        "registered": counts["registered"] | {"unready": {"total": "1", "resourceUnready": "1"}}  # type: ignore[operator]
    }
    assert stored(scene) == {
        "time": "2026-11-21 07:20:54.000000000 +0000 UTC",
        "autoscalerStatus": "Running",
        "clusterWide": {
            "health": {"status": "Healthy", "nodeCounts": everywhere, **probe},
            "scaleUp": {"status": "NoActivity", **probe},
            "scaleDown": {"status": "CandidatesPresent", "candidates": "2", **probe},
        },
        "nodeGroups": [
            {
                "name": "g",
                "health": {
                    "status": "Healthy",
                    "nodeCounts": counts,
                    "cloudProviderTarget": "7",
                    "minSize": "1",
                    "maxSize": "9",
                    **probe,
                },
                "scaleUp": {
                    "status": "Backoff",
                    "backoffInfo": {"errorCode": "NoStock", "errorMessage": "no machines left"},
                    **probe,
                },
                "scaleDown": {"status": "CandidatesPresent", "candidates": "2", **probe},
            }
        ],
    }
    assert scene.wall.maps[NAME]["metadata"]["annotations"] == {
        ANNOTATION: "2026-11-21 07:20:54.000000000 +0000 UTC"
    }


def test_status_keys_are_in_upstreams_order_and_empty_ones_omitted() -> None:
    text = render(document(plan(groups=(group(counts={}),)), {}))
    assert re.findall(r"^(\w+):", text, re.MULTILINE) == [
        "time",
        "autoscalerStatus",
        "clusterWide",
        "nodeGroups",
    ]
    assert re.search(r"^- name: g$", text, re.MULTILINE)
    assert "beingDeleted" not in text
    assert "candidates" not in text
    assert yaml.safe_load(text)["clusterWide"]["health"]["nodeCounts"]["registered"]["total"] == 0


@each_row(
    ("parts", "status"),
    [
        ({"in_progress": True, "healthy": False, "backoff": BACKOFF}, "InProgress"),
        ({"healthy": False, "backoff": BACKOFF}, "Unhealthy"),
        ({"backoff": BACKOFF}, "Backoff"),
        ({}, "NoActivity"),
    ],
)
def test_status_of_a_group_has_an_order_of_precedence(parts: dict[str, Any], status: str) -> None:
    found = document(decided(groups=(group(**parts), group("h"))), {})
    assert found["nodeGroups"][0]["scaleUp"]["status"] == status
    assert ("backoffInfo" in found["nodeGroups"][0]["scaleUp"]) is (status == "Backoff")
    assert found["clusterWide"]["scaleUp"]["status"] == (
        "InProgress" if status == "InProgress" else "NoActivity"
    )


def test_status_truncates_a_long_vendor_message_and_says_so() -> None:
    assert shortened("x" * 500) == "x" * 500
    cut = shortened("x" * 501)
    assert (len(cut), cut[-12:]) == (500, "x<truncated>")


def test_status_transition_time_is_when_the_status_changed() -> None:
    scene = RecordFixture()
    for at, well in ((0, True), (100, True), (200, False), (300, False)):
        scene.passes(decided(NOW + at, groups=(group(healthy=well),)))
    found = stored(scene)["nodeGroups"][0]["health"]
    assert (found["status"], found["lastProbeTime"], found["lastTransitionTime"]) == (
        "Unhealthy",
        "2026-11-21T07:25:54Z",
        "2026-11-21T07:24:14Z",
    )
    assert stored(scene)["clusterWide"]["health"]["lastTransitionTime"] == "2026-11-21T07:20:54Z"


def test_status_transition_time_survives_a_cold_start_and_a_lost_row() -> None:
    scene = RecordFixture()
    scene.passes(decided())
    scene.left = type(scene.left)()
    scene.passes(decided(NOW + 1000))
    assert stored(scene)["clusterWide"]["health"]["lastTransitionTime"] == "2026-11-21T07:20:54Z"


def test_status_unchanged_is_written_once_a_minute_and_not_read_in_between() -> None:
    scene = RecordFixture()
    for at in range(0, 121, 10):
        scene.passes(decided(NOW + at))
    assert [call for call in scene.wall.calls if call in ("find", "change")] == [
        "find",
        "change",
    ] * 3


def test_status_change_is_written_at_once() -> None:
    scene = RecordFixture()
    scene.passes(decided())
    scene.passes(decided(NOW + 1, unneeded=("n1",)))
    assert stored(scene)["clusterWide"]["scaleDown"]["candidates"] == "1"


def test_status_is_written_although_the_clock_goes_back() -> None:
    scene = RecordFixture()
    scene.passes(decided())
    scene.passes(decided(NOW - 3600))
    assert scene.wall.calls.count("change") == 2


@each_row(
    "rubbish",
    [
        "Cluster-autoscaler status at 2019: healthy",
        "{",
        "- a\n- b",
        "",
        "clusterWide: 5\nnodeGroups: x",
        "clusterWide: {health: [1]}\nnodeGroups: [1, {name: g, health: no}]",
        "a: &a [*a]",
        "[" * 3000,
    ],
)
def test_status_replaces_only_its_key_in_a_foreign_config_map(rubbish: str) -> None:
    scene = RecordFixture()
    scene.wall.maps[NAME] = {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "data": {"status": rubbish, "theirs": "kept"},
    }
    scene.passes(decided())
    assert scene.trouble == ""
    assert scene.wall.maps[NAME]["data"]["theirs"] == "kept"
    assert stored(scene)["clusterWide"]["health"]["status"] == "Healthy"


def test_status_config_map_without_data_is_filled() -> None:
    scene = RecordFixture()
    scene.wall.maps[NAME] = {"metadata": {"uid": "u", "resourceVersion": "7"}}
    scene.passes(decided())
    assert stored(scene)["autoscalerStatus"] == "Running"


@each_row(("conflicts", "trouble"), [(2, ""), (3, "status: Conflict: changed meanwhile")])
def test_status_concurrent_write_is_not_overwritten_unread(conflicts: int, trouble: str) -> None:
    scene = RecordFixture()
    scene.wall.conflicts = conflicts
    scene.passes(decided())
    assert scene.trouble == trouble
    assert scene.wall.calls.count("find") == 3


def test_status_refused_write_is_reported_and_retried_after_a_minute() -> None:
    scene = RecordFixture()
    scene.wall.errors["maps"] = Forbidden("configmaps is forbidden")
    said = []
    for at in range(0, int(EVERY) + 1, 10):
        scene.passes(decided(NOW + at))
        said.append(scene.trouble)
    assert [bool(words) for words in said] == [True, *[False] * 5, True]
    assert len(scene.journal.entries) == 1


def test_status_missing_config_map_is_reported_once_and_filled_when_present() -> None:
    scene = RecordFixture(namespace="scaling", status_config_map_name=NAME)
    there = scene.wall.maps.pop(NAME)
    said = []
    for minute in range(4):
        scene.passes(decided(NOW + minute * EVERY))
        said.append(scene.trouble)
    reported = (
        "status: ConfigMap scaling/cluster-autoscaler-status is not there, so no status is "
        "written: apply "
        "what outscaler manifests rbac prints, with that name in it, or set writeStatusConfigmap: "
        "false in "
        "the policy"
    )
    assert said == [reported, "", "", ""]
    assert {call for call in scene.wall.calls if not call.startswith("uid")} == {"find"}
    assert len(scene.journal.entries) == 1
    scene.wall.maps[NAME] = there
    scene.passes(decided(NOW + 4 * EVERY))
    assert (scene.trouble, stored(scene)["autoscalerStatus"]) == ("", "Running")
    del scene.wall.maps[NAME]
    scene.passes(decided(NOW + 5 * EVERY))
    assert "is not there" in scene.trouble


@each_row("settings", [{"write_status_configmap": False}, {"wall": False}])
def test_status_disabled_is_neither_read_nor_written(settings: dict[str, Any]) -> None:
    scene = RecordFixture(**settings)
    scene.passes(decided())
    assert scene.wall.calls == []


def test_status_times_have_gos_format() -> None:
    assert long_time(1_795_245_654.5) == "2026-11-21 07:20:54.500000000 +0000 UTC"
    assert long_time(1_795_245_654.9999999999) == "2026-11-21 07:20:55.000000000 +0000 UTC"


def test_status_round_trips() -> None:
    written = document(decided(groups=(group(backoff=BACKOFF),)), {})
    assert document(decided(groups=(group(backoff=BACKOFF),)), parse(render(written))) == written


@each_row("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_status_endlessly_nested_text_is_ignored(text: str) -> None:
    assert parse(text) == {}
