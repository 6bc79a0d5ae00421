"""Scaling rules in the demonstration: the vendor's example object, the output of verdicts, and
the Huawei Cloud observer."""

from __future__ import annotations

import json
import threading

import pytest

from chalicelib.model.plan import GroupVerdict, Plan, RuleVerdict, ScaleUp
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Metric
from chalicelib.policy.horizontal_node_autoscaler import read_object
from infra.demo import fixture
from infra.demo.cloud_accounts import CloudObserver, HuaweiReader
from infra.demo.console import Ledger
from infra.demo.decision_narrator import Rulings, clock_time
from infra.demo.fixture import Passes
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.huaweicloud.account import PROJECT
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import CceDurations
from infra.emulators.kube.store import ObjectStore
from infra.emulators.lambda_events import Json
from infra.emulators.live.lambda_processes import Functions, Result
from infra.emulators.vendor_common.http_messages import Incoming

POOL = fixture.NIGHT_UID
AT_2047 = 1_795_294_020.0


class Heard:
    """Records the output."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, who: str, words: str) -> None:
        self.lines.append(f"{who}: {words}")


def _same(text: str) -> str:
    return text


def _rulings(ledger: Ledger, heard: Heard) -> Rulings:
    return Rulings(ledger, heard.say, lambda id_: id_.rpartition("/")[2], _same)


def test_demo_rule_object_is_the_vendors_example_at_2047() -> None:
    found = read_object(fixture.rules(AT_2047))
    assert (found.key, found.problems, found.warnings) == (fixture.RULE_OBJECT, (), ())
    cron, metric = found.rules
    assert (cron.name, cron.cron, cron.add, cron.groups) == ("cronrule", "47 20 * * *", 1, (POOL,))
    assert (metric.name, metric.metric, metric.above, metric.add) == (
        "metricrule",
        Metric.CPU,
        40,
        2,
    )


@pytest.mark.parametrize("waited", [0.0, 5.0, 60.0])
def test_demo_rule_is_due_at_the_first_minute_for_which_a_pass_is_ready(waited: float) -> None:
    now = AT_2047 + waited
    at = fixture.strike(now)
    assert at % 60 == 0
    assert 0.0 <= at - (now + 120.0) < 60.0
    (cron, _) = read_object(fixture.rules(at)).rules
    hour, minute = clock_time(at).split(":")
    assert cron.cron == f"{int(minute)} {int(hour)} * * *"


def test_demo_node_group_is_its_pool_or_in_night_its_flavour() -> None:
    label = "node.kubernetes.io/instance-type"
    assert fixture.group_name({"pool": "night", label: "m7.xlarge.8"}) == fixture.NIGHT_FIRST
    assert fixture.group_name({"pool": "day", label: "c7.xlarge.2"}) == fixture.DAY
    assert fixture.group_name({}) == ""


def test_demo_cron_rule_action_and_result_are_reported_once_each() -> None:
    ledger, heard = Ledger(strike=AT_2047), Heard()
    rulings = _rulings(ledger, heard)
    key = f"{fixture.RULE_OBJECT}/cronrule"
    due = RuleVerdict("cronrule", POOL, fixture.RULE_OBJECT, nodes=1, due=AT_2047)
    silent = RuleVerdict(
        "metricrule",
        POOL,
        fixture.RULE_OBJECT,
        rate=42.09,
        reason=Reason.of(ReasonCode.RULE_SUPERSEDED, by=key),
    )
    for at, group in ((4.0, "m7"), (60.0, "c7")):
        up = ScaleUp(f"{POOL}/{group}", "huaweicloud", 0, 1, 4, rules=(key,))
        rulings.tell(Plan("p", "shop", AT_2047 + at, scale_ups=(up,), rules=(due, silent)))
    assert [each.groups for each in ledger.acted] == [("m7",), ("c7",)]
    assert ledger.beside == {"metricrule": 42.09}
    assert ledger.rules_seen == {key, f"{fixture.RULE_OBJECT}/metricrule"}
    first, beside, again = heard.lines
    assert "due at 20:47, adds 1 node, of m7" in first
    assert "42.1 %" in beside
    assert "did not come: asks c7" in again


def test_demo_cpu_rule_is_reported_with_its_arithmetic() -> None:
    ledger, heard = Ledger(), Heard()
    up = ScaleUp("p/default", "huaweicloud", 2, 4, 6, rules=("busy",))
    group = GroupVerdict("p/default", "huaweicloud", 2, 6, 2, ready=2)
    _rulings(ledger, heard).tell(
        Plan(
            "p",
            "shop",
            1.0,
            scale_ups=(up,),
            groups=(group,),
            rules=(RuleVerdict("busy", "p", nodes=2, rate=90.561),),
        )
    )
    (reported,) = heard.lines
    assert reported == (
        "outscaler: rule busy: pods ask for 90.6 % of the cpu of 2 nodes of p, more than 60 %: "
        "adds "
        "2 nodes, which makes it 45.3 %; one less would leave 60.4 %"
    )


def test_demo_refused_rule_object_is_not_a_success() -> None:
    ledger = Ledger()
    note = Reason.of(
        ReasonCode.RULE_OBJECT_INVALID, object=fixture.RULE_OBJECT, detail="spec: is missing"
    )
    _rulings(ledger, Heard()).tell(Plan("p", "shop", 1.0, notes=(note,)))
    assert len(ledger.rules_wrong) == 1


class DemoRulesRecorder:
    """A project with a pool of two flavours, the preferred one sold out, and its observer."""

    def __init__(self) -> None:
        self.clock = ManualClock(AT_2047)
        self.account = HuaweiAccount(
            times=CceDurations(order=10.0, build=20.0, install=20.0, delete=20.0)
        )
        self.account.attach(self.clock, ObjectStore(self.clock))
        cloud = self.account.cloud
        self.pool = cloud.add_pool(self.account.cluster.uid, "night", size=1)
        cloud.add_group(self.pool.uid, "m7", flavor="m7.xlarge.8", priority=5)
        cloud.sell_out("m7.xlarge.8", cloud.zone("b"))
        ring = self.account.server.front.ring
        ring.tokens["MIIexampletoken"] = next(iter(ring.keys.values()))
        names = {
            f"{self.pool.uid}/default": fixture.NIGHT_SECOND,
            f"{self.pool.uid}/m7": fixture.NIGHT_FIRST,
        }
        self.ledger, self.heard = Ledger(), Heard()
        reader = HuaweiReader(self.account, names)
        self.watcher = CloudObserver(
            reader, self.ledger, self.heard.say, lambda: None, lambda: None
        )

    def send(self, method: str, path: str, **spec: object) -> None:
        base = f"/api/v3/projects/{PROJECT}/clusters/{self.account.cluster.uid}"
        body = (
            json.dumps({"kind": "NodePool", "apiVersion": "v3", "spec": spec}).encode()
            if spec
            else b""
        )
        answer = self.account.server.front.served(
            Incoming(
                method,
                f"{base}{path}",
                {"host": "cce.example.com", "x-auth-token": "MIIexampletoken"},
                body,
            )
        )
        assert answer.status == 200, answer.body

    def scale(self, total: int, group: str) -> None:
        self.send(
            "POST",
            f"/nodepools/{self.pool.uid}/operation/scale",
            desiredNodeCount=total,
            scaleGroups=[group],
        )

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.account.cloud.step()
        self.watcher.look()


def test_demo_counts_huawei_orders_refusals_and_nodes_once_each() -> None:
    watched = DemoRulesRecorder()
    watched.later(1.0)
    assert watched.heard.lines == [], "what is there already is no news"
    watched.scale(2, "m7")
    for _ in range(3):
        watched.later(11.0)
    watched.scale(1, "m7")
    watched.scale(2, "default")
    for _ in range(3):
        watched.later(30.0)
    ledger = watched.ledger
    assert ledger.asked == [(fixture.NIGHT_FIRST, 1, 2), (fixture.NIGHT_SECOND, 1, 2)]
    assert (ledger.refused, ledger.bought) == ({fixture.NIGHT_FIRST: 1}, {fixture.NIGHT_SECOND: 1})
    assert ledger.why == {fixture.NIGHT_FIRST: "SoldOut"}
    assert watched.watcher.sizes() == {fixture.NIGHT_FIRST: 0, fixture.NIGHT_SECOND: 2}
    node = watched.pool.groups["default"].staying[-1].uid
    watched.send("DELETE", f"/nodes/{node}")
    watched.later(5.0)
    watched.scale(2, "default")
    watched.later(5.0)
    assert ledger.asked[-1] == (fixture.NIGHT_SECOND, 1, 2), (
        "a deletion lowers the total that is known"
    )
    assert sum("deletes" in line for line in watched.heard.lines) == 1


class Quick(Functions):
    """Functions with a configurable duration."""

    def __init__(self) -> None:
        super().__init__({}, {}, lambda: 0.0, lambda result, event: None)
        self.invoked: list[str] = []
        self.inside, self.may_end = threading.Event(), threading.Event()

    def invoke(self, name: str, event: Json) -> Result:
        self.invoked.append(name)
        self.inside.set()
        assert self.may_end.wait(600)
        return Result(name, 0.0, 0.0)


def test_demo_no_pass_begins_while_passes_are_blocked_and_others_continue() -> None:
    functions = Quick()
    passes = Passes(functions)
    first = threading.Thread(target=functions.invoke, args=("reconcile", {}))
    first.start()
    assert functions.inside.wait(600)
    passes.hold()
    assert (passes.held, passes.still) == (True, False), "one is under way"
    functions.may_end.set()
    first.join(10.0)
    assert passes.still
    second = threading.Thread(target=functions.invoke, args=("reconcile", {}))
    second.start()
    functions.invoke("tick", {})
    assert (functions.invoked, passes.begun) == (["reconcile", "tick"], 1)
    passes.release()
    second.join(10.0)
    assert (functions.invoked, passes.begun) == (["reconcile", "tick", "reconcile"], 2)
