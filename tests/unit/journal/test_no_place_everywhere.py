"""Why pods have no place is one sentence, wherever it is read."""

from __future__ import annotations

from chalicelib.cli.columns import PODS, WaitingPod
from chalicelib.cli.plan_document import encoded
from chalicelib.cli.plan_output import as_blocks
from chalicelib.journal.pass_events import PassFacts, events_of_pass
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import ALL_GROUPS_OF_PROVIDER, MissingData
from chalicelib.notify.conditions import ClusterFacts, conditions
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.no_place import no_place
from chalicelib.shadow.verdicts import growth as judged_growth
from chalicelib.store.leases import ScanState
from chalicelib.views.cluster_view import no_place_data, pod_views
from tests.builders import NOW, cluster, node, verdict

LINE = "pool-7: max node group size reached (max 0); 2 other groups: labels 2"


def full_group() -> Plan:
    build = cluster()
    for name in ("pool-6", "pool-7", "pool-8"):
        most = 0 if name == "pool-7" else 9
        build.group(name, max=most, template=node(f"t-{name}", "4", labels={"pool": name}))
    return build.pending(3, "2", node_selector={"pool": "pool-7"}).plan()


def test_reason_of_a_pod_without_a_place_is_the_same_sentence_everywhere() -> None:
    plan = full_group()
    assert no_place(verdict(plan)).line == LINE
    blocks = as_blocks(plan, {"decode": 0.0, "plan": 0.0})
    [table] = [block for block in blocks if getattr(block, "title", "") == "Pods without a place"]
    assert "; ".join(row[1] for row in table.rows) == LINE  # type: ignore[union-attr]
    assert encoded(plan.unschedulable)[0]["why"] == LINE
    [row, *_] = (WaitingPod(view, {}) for view in pod_views(plan))
    assert LINE in PODS.row(row, NOW).cells
    assert PODS.data(row)["why"] == LINE
    assert no_place_data(plan)[0]["why"] == LINE
    messages = {event.message for event in events_of_pass(PassFacts(plan, cluster().snapshot()))}
    assert f"pod didn't trigger scale-up: {LINE}" in messages
    passed = ScanState(last_pass=NOW - 20, last_success=NOW - 20)
    facts = ClusterFacts("c", NOW, Policy(name="c"), True, True, passed, {}, Memory(), (), plan)
    notices = [notice.message for notice in conditions(facts)]
    assert any(notice.endswith(f": {LINE}") for notice in notices)
    assert LINE in judged_growth({"pool-7": 1}, plan, (), random=False).detail


def unread(provider: str) -> MissingData:
    return MissingData(
        f"provider/{provider}", "no answer", affected_decisions=(ALL_GROUPS_OF_PROVIDER,)
    )


def test_vendor_that_is_not_read_comes_before_groups_that_do_not_match() -> None:
    unmatched = verdict(
        cluster()
        .group("a", max=9, template=node("t", "4"))
        .pending(1, "2", node_selector={"pool": "b"})
        .plan()
    )
    place = no_place(unmatched, gaps=(unread("exoscale"),))
    assert place.cause == "exoscale is not read, so its groups are unknown: no answer"
    assert place.others.startswith("a: node(s) didn't match")
    assert place.code == "GroupUnreadable"
    full = no_place(verdict(full_group()), gaps=(unread("exoscale"),))
    assert full.line.startswith(LINE), "a maximum is one setting away"
    assert full.others.endswith("exoscale is not read, so its groups are unknown: no answer")


def test_doubt_about_one_object_of_a_vendor_is_no_cause() -> None:
    doubt = MissingData("provider/huaweicloud", "its own add-on is at work")
    assert no_place(verdict(full_group()), gaps=(doubt,)).line == LINE
