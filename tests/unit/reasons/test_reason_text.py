"""Checks that every reason code has a text, and that texts which scripts rely on are the
scheduler's and upstream's.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from chalicelib.cli import explain_group, explain_pod, plan_document, plan_output
from chalicelib.cli.explain_view import ExplainContext
from chalicelib.cli.output import Table
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import Taint
from chalicelib.model.plan import GroupVerdict, Plan, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.text import lasting_first, sentence, text
from chalicelib.views.cluster_view import pod_views
from tests.builders import (
    NOW,
    ZONE,
    ClusterBuilder,
    cluster,
    even,
    having,
    near,
    node,
    tally,
    verdict,
    words,
)
from tests.cases import each_row


@each_row("code", list(ReasonCode))
def test_every_reason_code_has_a_text_even_without_its_numbers(code: ReasonCode) -> None:
    params: dict[str, str | int | float] = (
        {"rule": "NotReplicated"} if code is ReasonCode.BLOCKED_BY_POD else {}
    )
    assert text(Reason(code, params)).strip()
    assert sentence(Reason(code, params)).startswith(text(Reason(code, params)))


@each_row(
    ("reason", "words_", "whole"),
    [
        (
            Reason.of(ReasonCode.INSUFFICIENT, resource="cpu", needs=8000, offers=3900),
            "Insufficient cpu",
            "Insufficient cpu (needs 8, template offers 3900m)",
        ),
        (
            Reason.of(ReasonCode.INSUFFICIENT, resource="memory", needs=2**34, offers=3 * 2**29),
            "Insufficient memory",
            "Insufficient memory (needs 16Gi, template offers 1.5Gi)",
        ),
        (
            Reason.of(ReasonCode.UNTOLERATED_TAINT, taint="k=v:NoSchedule"),
            "node(s) had untolerated taint(s)",
            "node(s) had untolerated taint(s) (k=v:NoSchedule)",
        ),
        (
            Reason.of(ReasonCode.GROUP_MAX_SIZE, max=10),
            "max node group size reached",
            "max node group size reached (max 10)",
        ),
        (
            Reason.of(ReasonCode.OUTSIDE_WINDOW, window="night", until=1_795_744_800.0),
            "maintenance windows forbid removals now",
            "maintenance windows forbid removals now (night, until 2026-11-27T02:00:00Z)",
        ),
        (
            Reason.of(ReasonCode.SPOT_AVOIDED, until=1_795_744_800.0),
            "its vendor has announced to take back a node of it (avoidAfterInterruption)",
            (
                "its vendor has announced to take back a node of it (avoidAfterInterruption) "
                "(until 2026-11-27T02:00:00Z)"
            ),
        ),
        (
            Reason.of(ReasonCode.OUTSIDE_WINDOW, window="night", needs=900.0),
            "maintenance windows forbid removals too soon from now",
            "maintenance windows forbid removals too soon from now (night, needs 15m)",
        ),
        (
            Reason.of(
                ReasonCode.NOT_SICK_LONG_ENOUGH,
                condition="Ready=False",
                since=1_795_744_800.0,
                needs=600.0,
            ),
            "Ready=False has not lasted for long enough",
            "Ready=False has not lasted for long enough (since 2026-11-27T02:00:00Z, needs 10m)",
        ),
        (
            Reason.of(
                ReasonCode.BLOCKED_BY_POD, pod="ns/a", rule="LocalStorageRequested", volume="tmp"
            ),
            "blocked by pod ns/a",
            (
                "blocked by pod ns/a (LocalStorageRequested: it uses local storage (volume tmp); "
                "name the volume in "
                "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes if it may go)"
            ),
        ),
    ],
)
def test_reason_texts_and_sentences_with_numbers(reason: Reason, words_: str, whole: str) -> None:
    assert (text(reason), sentence(reason)) == (words_, whole)


def test_parameters_of_every_reason_can_be_written_in_its_texts() -> None:
    inner = {"rule": "NotReplicated", "was": "NotUnderutilized"}
    for code in ReasonCode:
        texts = code.row.words + code.row.detail
        names = re.findall(r"[{\[](\w+)[:}?]", texts)
        whole = sentence(Reason(code, {name: inner.get(name, 2) for name in names}))
        assert not set("{}[]|") & set(whole), code


def test_value_of_a_parameter_is_never_read_as_a_text_of_a_row() -> None:
    pod = "{rule:sentence} [a|b]"
    assert sentence(Reason.of(ReasonCode.NOT_ROBUST, pod=pod, order="z-a")).endswith(
        f" ({pod}, z-a)"
    )


@each_row(
    ("params", "detail"),
    [
        ({}, ""),
        ({"until": 1_795_744_800.0}, "until 2026-11-27T02:00:00Z"),
        ({"signal": "spot"}, "spot"),
        ({"until": 1_795_744_800.0, "signal": "spot"}, "until 2026-11-27T02:00:00Z, spot"),
    ],
)
def test_reason_stored_without_a_parameter_reads_without_that_part(
    params: dict[str, str | int | float], detail: str
) -> None:
    whole = sentence(Reason(ReasonCode.NODE_AT_RISK, params))
    assert whole == text(Reason(ReasonCode.NODE_AT_RISK)) + (f" ({detail})" if detail else "")


def test_reason_is_stored_as_its_code_and_an_unknown_code_is_refused() -> None:
    stored = msgspec.json.encode(Reason.of(ReasonCode.GROUP_MAX_SIZE, max=3))
    assert stored == b'{"code":"MaxNodeGroupSizeReached","params":{"max":3}}'
    assert msgspec.json.decode(stored, type=Reason).code is ReasonCode.GROUP_MAX_SIZE
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"code":"NoSuchReason"}', type=Reason)


# -- numbers in a plan's reasons


def _said(build: ClusterBuilder, **options: Any) -> dict[str, list[str]]:
    found = verdict(build.plan(**options)).reasons
    return {group: [sentence(reason) for reason in reasons] for group, reasons in found.items()}


def test_every_short_resource_of_every_group_is_reported_with_both_numbers() -> None:
    build = cluster().daemonset("agent", "100m", "512Mi")
    build.group("small", template=node("t", "4", "16Gi")).group(
        "flat", template=node("t", "16", "4Gi")
    )
    assert _said(build.pending(1, "8", "8Gi")) == {
        "small": ["Insufficient cpu (needs 8, template offers 3900m)"],
        "flat": ["Insufficient memory (needs 8Gi, template offers 3.5Gi)"],
    }
    assert _said(
        cluster()
        .group("g", template=node("t", "4", "4Gi"))
        .pending(1, "8", "8Gi", extra={"nvidia.com/gpu": 2})
    ) == {
        "g": [
            "Insufficient cpu (needs 8, template offers 4)",
            "Insufficient memory (needs 8Gi, template offers 4Gi)",
            "Insufficient nvidia.com/gpu (needs 2, template offers 0)",
        ]
    }


@each_row(
    ("group", "pod", "sentence_"),
    [
        pytest.param(
            {"taints": [Taint("k", "NoSchedule", "v")]},
            {},
            "node(s) had untolerated taint(s) (k=v:NoSchedule)",
            id="taint",
        ),
        pytest.param({"unschedulable": True}, {}, "node(s) were unschedulable", id="cordoned"),
        pytest.param(
            {},
            {"node_selector": {"a": "1"}},
            "node(s) didn't match Pod's node affinity/selector (a=1: has no such label)",
            id="selector",
        ),
        pytest.param(
            {},
            {"spread": (even("rack", having(app="rs")),)},
            "node(s) didn't match pod topology spread constraints (missing required label) (rack)",
            id="label",
        ),
        pytest.param(
            {"zone": "a"},
            {"spread": (even(ZONE, having(app="x")),)},
            f"node(s) didn't match pod topology spread constraints ({ZONE}: skew 2, maxSkew 1)",
            id="skew",
        ),
        pytest.param(
            {"zone": "a"},
            {"pod_affinity": (near(ZONE, having(app="nobody")),)},
            "node(s) didn't match pod affinity rules",
            id="affinity",
        ),
        pytest.param(
            {"zone": "a"},
            {"pod_anti_affinity": (near(ZONE, having(app="x")),)},
            "node(s) didn't match pod anti-affinity rules",
            id="anti-affinity",
        ),
        pytest.param(
            {"zone": "a"},
            {"owner": "hated"},
            "node(s) didn't satisfy existing pods anti-affinity rules",
            id="their-anti-affinity",
        ),
    ],
)
def test_reason_against_a_group_whose_nodes_are_large_enough(
    group: dict[str, Any], pod: dict[str, Any], sentence_: str
) -> None:
    build = cluster().node("full-a", "0", zone="a").node("full-b", "0", zone="b")
    build.running("full-a", 2, owner="x", pod_anti_affinity=(near(ZONE, having(app="hated")),))
    assert _said(build.group("g", template=node("t", "8", **group)).pending(1, "1", **pod)) == {
        "g": [sentence_]
    }


@each_row(
    ("group", "options", "sentence_"),
    [
        pytest.param({"max": 0}, {}, "max node group size reached (max 0)", id="maximum"),
        pytest.param(
            {"error": "403 Forbidden"},
            {},
            "not ready for scale-up (could not be read: 403 Forbidden)",
            id="unreadable",
        ),
        pytest.param(
            {"template": None, "template_error": "no machine type"},
            {},
            "not ready for scale-up (no node template: no machine type)",
            id="no-template",
        ),
        pytest.param(
            {},
            {"max_nodes_total": 1},
            "max total nodes in cluster reached (maxNodesTotal 1)",
            id="nodes",
        ),
        pytest.param(
            {},
            {"cores_total": (0, 7), "memory_total": (0, 2**30)},
            (
                'exceeded quota: "cluster-wide", resources: cpu, memory (cpu: 0 of 7 in use, a '
                "node counts 8)"
            ),
            id="two-resources",
        ),
    ],
)
def test_reason_why_a_group_is_not_considered(
    group: dict[str, Any], options: dict[str, Any], sentence_: str
) -> None:
    build = (
        cluster()
        .node("full", "0")
        .group("g", **{"template": node("t", "8"), **group})
        .pending(1, "1")
    )
    assert _said(build, **options) == {"g": [sentence_]}


def test_reason_of_a_group_that_lacks_nodes_for_which_no_pass_waits_any_more() -> None:
    build = (
        cluster().node("full", "0").group("g", template=node("t", "8"), target=9).pending(1, "1")
    )
    known = Memory(groups={"g": GroupMemory(target=9, first_seen=NOW - 3600.0)})
    [reason] = verdict(build.plan(known)).reasons["g"]
    assert sentence(reason) == "not ready for scale-up (9 nodes are missing)"


def test_each_pod_class_has_its_own_reasons_for_every_group() -> None:
    build = (
        cluster()
        .group("a", template=node("t", "2"))
        .group("b", template=node("t", "4", labels={"disk": "ssd"}))
    )
    build.pending(2, "8", name="big", owner="big").pending(
        1, "3", name="picky", owner="picky", node_selector={"disk": "hdd"}
    )
    plan = build.plan()
    assert [each.pods for each in plan.unschedulable] == [
        ("default/big-00000", "default/big-00001"),
        ("default/picky-00002",),
    ]
    assert words(plan, "default/big-00000") == {
        "a": ["Insufficient cpu"],
        "b": ["Insufficient cpu"],
    }
    selector = "node(s) didn't match Pod's node affinity/selector"
    assert words(plan, "default/picky-00002") == {"a": [selector], "b": [selector]}


def test_verdict_counts_existing_nodes_as_they_are_after_the_plan() -> None:
    """The two pods that fit are already placed on n, so the third finds it
    full, as in the scheduler."""
    plan = cluster().node("n", "2").node("m", "1").pending(4, "1").plan()
    assert len(plan.fits_existing) == 3
    assert tally(plan) == {"Insufficient cpu": 2}
    assert verdict(plan).nodes == 2


BACKOFF = Reason.of(ReasonCode.GROUP_BACKOFF, until=NOW + 600, error="OutOfStock")
TAINT = Reason.of(ReasonCode.UNTOLERATED_TAINT, taint="k=v:NoSchedule")
REFUSED = Plan(
    "plan-1",
    "test",
    NOW,
    groups=(GroupVerdict("web", "test", 0, 10, 2),),
    unschedulable=(UnschedulablePods(("shop/wide",), {"web": (BACKOFF, TAINT)}),),
)
IN_ORDER = f"{sentence(TAINT)}; {sentence(BACKOFF)}"


def test_reason_that_cannot_be_met_comes_before_one_that_passes() -> None:
    size = Reason.of(ReasonCode.INSUFFICIENT, resource="cpu", needs=8000, offers=3900)
    paused = Reason.of(ReasonCode.PAUSED, what="growth")
    assert lasting_first((BACKOFF, TAINT, paused, size)) == (TAINT, size, BACKOFF, paused)


def test_plan_and_explain_show_what_cannot_be_met_first_and_the_plan_stays_as_it_is() -> None:
    [rows] = [
        block.rows
        for block in plan_output.as_blocks(REFUSED, {"decode": 0.0, "plan": 0.0})
        if isinstance(block, Table) and block.title == "Pods without a place"
    ]
    assert rows == (("shop/wide", f"web: {IN_ORDER}"),)
    details = plan_document.as_document(REFUSED, {})["unschedulable"][0]["details"]
    assert details == {"web": [sentence(BACKOFF), sentence(TAINT)]}
    case = PlanInputs(Snapshot("test", NOW), Policy("test"), Memory(), NOW, 0, None, (), 0.0)
    context = ExplainContext(case, PlannedCase(REFUSED, Memory(), {}))
    part = explain_pod.pending(context, "shop/wide", bound=False)
    assert part is not None
    assert part.tables[0].rows == (("web", IN_ORDER),)
    of_group = explain_group.answer(context, "web")
    assert [table.rows for table in of_group.tables if table.columns == ("pods", "why not")] == [
        (("shop/wide", IN_ORDER),)
    ]


def test_waiting_pods_of_the_page_and_of_get_show_what_cannot_be_met_first() -> None:
    [view] = pod_views(REFUSED)
    assert view.no_place is not None
    assert view.no_place.line == f"web: {IN_ORDER}"
