"""HorizontalNodeAutoscaler objects in a snapshot, from a cluster and from files, and the
meaning of their absence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cluster.listed_resources import RULE_OBJECTS
from chalicelib.cluster.live_cluster import read_live_cluster
from chalicelib.model.scaling_rules import Metric, RuleObject
from chalicelib.model.snapshot import MissingData, Snapshot
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from tests.cases import each_row
from tests.unit.cluster.support import client, status
from tests.unit.cluster.test_live_cluster import NOW, LiveSnapshotApi, observe
from tests.unit.cluster.test_saved_cluster import _node, _read, _write


def rule_object(name: str, **spec: Any) -> dict[str, Any]:
    """A rule object that adds two nodes above 40 %, as an item of a list: without kind."""
    rule = {
        "ruleName": "busy",
        "type": "Metric",
        "action": {"type": "ScaleUp", "unit": "Node", "value": 2},
        "metricTrigger": {
            "metricName": "Cpu",
            "metricOperation": ">",
            "metricValue": "40",
            "unit": "%",
        },
    }
    return {
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"uid-{name}"},
        "spec": {"targetNodepoolIds": ["pool-1"], "rules": [rule], **spec},
    }


def taken(*replies: Reply, rules: bool = True) -> tuple[Snapshot, list[Seen]]:
    """Reads a snapshot of a cluster that gives this answer for rule objects."""
    api, waiting = LiveSnapshotApi(), list(replies)
    with HttpScript(
        lambda seen: waiting.pop(0) if seen.path == RULE_OBJECTS.path else api(seen)
    ) as server:
        return read_live_cluster("prod", client(server), observe, NOW, rules=rules), server.requests


def page(*items: dict[str, Any], more: str = "") -> Reply:
    meta = {"resourceVersion": "9"} | ({"continue": more} if more else {})
    return Reply(
        body={"kind": "HorizontalNodeAutoscalerList", "metadata": meta, "items": list(items)}
    )


def found(snapshot: Snapshot) -> tuple[RuleObject, ...]:
    assert snapshot.rule_objects is not None
    return snapshot.rule_objects


def gaps(snapshot: Snapshot) -> list[MissingData]:
    return [gap for gap in snapshot.gaps if gap.kind == RULE_OBJECTS.kind]


def test_CCE_A2_objects_are_read_in_pages_with_all_other_kinds() -> None:
    snapshot, requests = taken(
        page(rule_object("b"), more="2"), page(rule_object("a", disable=True))
    )
    assert [(each.key, each.uid, each.disabled) for each in found(snapshot)] == [
        ("kube-system/a", "uid-a", True),
        ("kube-system/b", "uid-b", False),
    ]
    [rule] = found(snapshot)[1].rules
    assert (rule.metric, rule.above, rule.add, rule.groups) == (Metric.CPU, 40, 2, ("pool-1",))
    assert len([seen for seen in requests if seen.path == RULE_OBJECTS.path]) == 2
    assert gaps(snapshot) == []


def test_CCE_A2_invalid_object_is_read_as_refused_and_is_not_a_gap() -> None:
    snapshot, _ = taken(page(rule_object("good"), rule_object("bad", rules=[{}])))
    bad, good = found(snapshot)
    assert (bad.name, bad.rules, len(bad.problems)) == ("bad", (), 2)
    assert good.rules
    assert good.problems == ()
    assert gaps(snapshot) == []


def test_rule_objects_are_not_requested_if_the_policy_excludes_them() -> None:
    snapshot, requests = taken(rules=False)
    assert found(snapshot) == ()
    assert RULE_OBJECTS.path not in {seen.path for seen in requests}


def test_rule_objects_of_an_unknown_kind_are_none_without_a_gap() -> None:
    snapshot, _ = taken(
        Reply(404, status(404, "NotFound", "the server could not find the requested resource"))
    )
    assert found(snapshot) == ()
    assert gaps(snapshot) == []


@each_row(
    "reply",
    [
        Reply(403, status(403, "Forbidden", "not for you")),
        Reply(400, status(400, "BadRequest", "conversion webhook failed")),
        Reply(body={"kind": "Status", "items": 3}),
    ],
    ids=["forbidden", "broken", "no list"],
)
def test_CCE_A2_unreadable_objects_are_a_gap_and_count_as_not_read(reply: Reply) -> None:
    snapshot, _ = taken(reply)
    assert snapshot.rule_objects is None, "so that the last good ones stay in force"
    [gap] = gaps(snapshot)
    assert gap.affected_decisions == (
        "rules of HorizontalNodeAutoscalers: the last good ones are in force",
    )
    assert len(snapshot.pods) == 3, "everything else goes on"


def test_rule_objects_refused_on_the_second_page_count_as_not_read() -> None:
    snapshot, _ = taken(
        page(rule_object("a"), more="2"), Reply(403, status(403, "Forbidden", "no more"))
    )
    assert snapshot.rule_objects is None


def test_rule_object_without_a_name_is_a_gap_and_others_count() -> None:
    snapshot, _ = taken(page({"metadata": {}, "spec": {}}, rule_object("a")))
    assert [each.name for each in found(snapshot)] == ["a"]
    assert [gap.place for gap in gaps(snapshot)] == [f"{RULE_OBJECTS.path}: items[0]"]


@pytest.mark.parametrize("kind", ["HorizontalNodeAutoscaler", "horizontalnodeautoscaler"])
def test_CCE_A2_saved_objects_are_read_in_any_spelling_of_their_kind(
    tmp_path: Path, kind: str
) -> None:
    _write(tmp_path, [_node()])
    (tmp_path / "rules.json").write_text(
        json.dumps(
            {
                "kind": "List",
                "items": [
                    {"kind": kind, "apiVersion": "autoscaling.cce.io/v1alpha1", **rule_object("a")}
                ],
            }
        )
    )
    assert [each.key for each in found(_read(tmp_path))] == ["kube-system/a"]


def test_rule_objects_saved_empty_list_counts_as_read(tmp_path: Path) -> None:
    assert _read(_write(tmp_path, [_node()])).rule_objects is None
    (tmp_path / "rules.json").write_text(
        json.dumps({"kind": "HorizontalNodeAutoscalerList", "items": []})
    )
    assert found(_read(tmp_path)) == ()
