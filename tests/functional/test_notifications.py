"""Notifications of a tick: delivered at least once, to every destination by itself,
and without harm to passes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from collections.abc import Mapping
from typing import Any

import boto3
import msgspec
import pytest
from moto import mock_aws

from chalicelib.aws.sns import NotPublished, TopicPublisher
from chalicelib.journal.journal import plan_entry
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.notification import NoticeSeverity
from chalicelib.model.overview import ClusterOverview, PoolOverview
from chalicelib.model.plan import Plan, UnschedulablePods
from chalicelib.notify.delivery import Channels
from chalicelib.notify.notification_request import NotAccepted, WebhookSender, permitted, signature
from chalicelib.notify.run import load_state, notify
from chalicelib.policy.settings.cluster_policy import Policy, in_mode
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.policy.settings.notifications import NoticeWebhook, Notifications, QuietHours
from chalicelib.store.leases import PassFailure
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.memory_table import MemoryAccount

NOW = 1_795_000_000.0
NAME = "prod-geneva"
TOPIC = "arn:aws:sns:eu-central-2:123456789012:outscaler-events"
CHAT = "arn:aws:sns:eu-central-2:123456789012:outscaler-chat"
HOOK = NoticeWebhook("https://hooks.example.org/x", "outscaler/prod-geneva/notifications")
EVERYWHERE = Notifications(
    topic=TOPIC, chat_topic=CHAT, webhook=HOOK, min_severity=NoticeSeverity.INFO
)


class Outbox:
    """Records what is published and posted; names in `down` are refused."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.down: set[str] = set()
        self.attributes: list[dict[str, str]] = []

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        if topic in self.down:
            raise NotPublished("InternalError")
        self.sent.append((topic, json.loads(text)))
        self.attributes.append(dict(attributes))

    def post(self, url: str, secret: str, message_id: str, now: float, body: bytes) -> None:
        if url in self.down:
            raise NotAccepted("no answer (ConnectTimeout)")
        assert secret == f"text of {HOOK.secret}"
        self.sent.append((url, json.loads(body)))

    def states(self, destination: str = TOPIC) -> list[tuple[str, str]]:
        return [(each["type"], each["state"]) for where, each in self.sent if where == destination]


class Stage:
    """A cluster with a failing group, ticks, and an outbox."""

    def __init__(self, settings: Notifications = EVERYWHERE) -> None:
        self.clock, self.outbox = ManualClock(NOW), Outbox()
        self.store = MemoryAccount().store("t", clock=self.clock)
        self.policy = msgspec.structs.replace(
            in_mode(Policy(name=NAME), "active"), notifications=settings, version=1
        )

    def remember(self, memory: Memory) -> None:
        lease = self.store.leases.acquire(NAME, "pass", 60)
        self.store.memory.save(NAME, self.store.memory.load(NAME), memory, (), lease)
        self.store.leases.release(lease, passed_at=self.clock())

    def fail(self) -> None:
        backoff = Backoff(
            300.0, self.clock() + 300, self.clock(), "OutOfStock", "SoldOut", "none left"
        )
        self.remember(Memory(groups={"gpu": GroupMemory(backoff=backoff)}))

    def recover(self) -> None:
        self.remember(Memory(groups={"gpu": GroupMemory(last_add=self.clock())}))

    def decide(self, *, waiting: bool) -> None:
        """A pass decides. waiting: a pod has no place."""
        pods = (UnschedulablePods(("ml/train",), {}, 1),) if waiting else ()
        plan = Plan("p", NAME, self.clock(), unschedulable=pods)
        self.store.journal.append(NAME, plan_entry(plan))

    def tick(self, advance: float = 60.0) -> int:
        def channels(cluster: str) -> Channels:
            return Channels(
                cluster, "outscaler-dev", self.outbox, self.outbox, lambda name: f"text of {name}"
            )

        count = notify([self.policy], self.store, channels, self.clock, {NAME: NOW})
        self.clock.advance(advance)
        return count


def test_condition_is_reported_once_when_it_opens_and_once_when_it_ends() -> None:
    stage = Stage()
    assert stage.tick() == 0
    stage.fail()
    for _ in range(4):
        stage.tick()
    stage.recover()
    for _ in range(3):
        stage.tick()
    expected = [("dev.outscaler.group.failed", "open"), ("dev.outscaler.group.failed", "closed")]
    assert stage.outbox.states(TOPIC) == stage.outbox.states(HOOK.url) == expected
    assert len([each for each in stage.outbox.sent if each[0] == CHAT]) == 2


def test_tick_that_a_newer_one_overtakes_stores_and_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has read its facts before the group recovered, and comes last."""
    stage = Stage()
    stage.fail()
    stage.tick()
    older, overtaken = stage.store.memory.glance(NAME), list[bytes]()

    def glance(cluster: str) -> Memory:
        monkeypatch.undo()
        stage.recover()
        stage.tick()
        overtaken.append(stage.store.notices().load(cluster)[0])
        return older

    monkeypatch.setattr(stage.store.memory, "glance", glance)
    stage.tick()
    assert overtaken == [stage.store.notices().load(NAME)[0]]
    expected = [("dev.outscaler.group.failed", "open"), ("dev.outscaler.group.failed", "closed")]
    assert stage.outbox.states(TOPIC) == expected


def test_group_that_is_sold_out_is_reported_once_although_pods_wait_now_and_then() -> None:
    stage = Stage(Notifications(topic=TOPIC))
    stage.fail()  # no pass is late yet after four ticks
    for minute in range(4):
        stage.decide(waiting=minute % 2 == 0)
        stage.tick()
    assert stage.outbox.states(TOPIC) == [("dev.outscaler.group.failed", "open")]


def test_managed_pool_that_buys_nothing_is_reported_until_it_buys_again() -> None:
    stage = Stage()
    pools = (ManagedPool("general", "exoscale"),)
    stage.policy = msgspec.structs.replace(stage.policy, managed_pools=pools)
    for held, passes in (("no catalogue yet", 12), ("", 7)):
        seen = ClusterOverview(pools=(PoolOverview("general", "exoscale", held=held),))
        stage.store.gauge_rings.add_overview(NAME, seen, stage.clock())
        for _ in range(passes):
            stage.remember(Memory())
            stage.tick()
    expected = [("dev.outscaler.pool.held", "open"), ("dev.outscaler.pool.held", "closed")]
    assert stage.outbox.states(TOPIC) == expected


def test_passes_that_never_start_are_reported_by_ticks_alone() -> None:
    stage = Stage()
    for _ in range(10):
        stage.tick()
    assert stage.outbox.states(TOPIC) == [("dev.outscaler.cluster.late", "open")]
    stage.remember(Memory())
    for _ in range(6):
        stage.tick(30.0)
        stage.remember(Memory())
    for _ in range(6):
        stage.tick(30.0)
        stage.remember(Memory())
    assert stage.outbox.states(TOPIC)[1:] == [("dev.outscaler.cluster.late", "closed")]


def test_cluster_that_a_schedule_switches_on_is_not_late_at_once() -> None:
    stage = Stage()
    stage.remember(Memory())
    by_day = stage.policy
    stage.policy = in_mode(by_day, "off")
    stage.tick(36_000.0)
    stage.policy = by_day
    stage.tick(20.0)
    stage.remember(Memory())
    stage.tick()
    late = [state for kind, state in stage.outbox.states(TOPIC) if kind.endswith("cluster.late")]
    assert late == []


def test_event_is_a_cloud_event_with_attributes_for_filters() -> None:
    stage = Stage()
    stage.fail()
    stage.tick()
    event = next(each for where, each in stage.outbox.sent if where == TOPIC)
    assert {
        name: event[name]
        for name in ("specversion", "source", "type", "subject", "severity", "state")
    } == {
        "specversion": "1.0",
        "source": f"//outscaler/outscaler-dev/clusters/{NAME}",
        "type": "dev.outscaler.group.failed",
        "subject": "groups/gpu",
        "severity": "warning",
        "state": "open",
    }
    assert event["data"]["class"] == "OutOfStock"
    assert event["data"]["command"] == f"outscaler explain group gpu --cluster {NAME}"
    assert all(name.isalnum() and name == name.lower() for name in event)
    assert stage.outbox.attributes[0] == {
        "cluster": NAME,
        "type": "group.failed",
        "severity": "warning",
        "state": "open",
    }
    chat = next(each for where, each in stage.outbox.sent if where == CHAT)
    assert (chat["version"], chat["source"], chat["metadata"]["threadId"]) == (
        "1.0",
        "custom",
        event["dedupkey"],
    )


def test_quiet_tick_writes_nothing() -> None:
    stage = Stage()
    stage.remember(Memory())
    stage.policy = msgspec.structs.replace(stage.policy, scan_interval=600.0)
    stage.tick()
    before = stage.store.notices().load(NAME)
    for _ in range(5):
        stage.tick()
    assert stage.store.notices().load(NAME) == before


def test_destination_that_was_down_gets_all_messages_in_order() -> None:
    stage = Stage()
    stage.outbox.down = {HOOK.url}
    stage.fail()
    stage.tick()
    assert (len(stage.outbox.states(TOPIC)), len(stage.outbox.states(HOOK.url))) == (1, 0)
    stage.policy = msgspec.structs.replace(stage.policy, scan_interval=3600.0)
    stage.recover()
    stage.tick()
    stage.outbox.down.clear()
    for _ in range(10):
        stage.tick()
    expected = [("dev.outscaler.group.failed", "open"), ("dev.outscaler.group.failed", "closed")]
    assert stage.outbox.states(TOPIC) == stage.outbox.states(HOOK.url) == expected


def test_unexpected_failure_of_a_destination_repeats_no_message_elsewhere() -> None:
    stage = Stage()

    def broken(*_: object) -> None:
        raise RuntimeError("not an error of the destination")

    stage.outbox.post = broken  # type: ignore[method-assign,assignment]
    stage.fail()
    for _ in range(3):
        stage.tick()
    assert stage.outbox.states(TOPIC) == [("dev.outscaler.group.failed", "open")]


def test_slow_destinations_of_many_clusters_never_hold_up_the_tick() -> None:
    stage = Stage()
    stage.fail()
    policies = [msgspec.structs.replace(stage.policy, name=f"{NAME}-{at}") for at in range(30)]
    seen: list[str] = []

    def channels(cluster: str) -> Channels:
        seen.append(cluster)
        stage.clock.advance(6.0)
        return Channels(cluster, "outscaler-dev", stage.outbox, stage.outbox, lambda name: name)

    begun = stage.clock()
    notify(policies, stage.store, channels, stage.clock, {})
    assert stage.clock() - begun < 45.0
    first = set(seen)
    stage.clock.advance(600.0)
    notify(policies, stage.store, channels, stage.clock, {})
    assert set(seen) - first, "other clusters are the first in another minute"


def test_quiet_hours_hold_every_message_of_severity_info() -> None:
    quiet = QuietHours(cron="0 0 * * *", duration=86400.0)
    stage = Stage(msgspec.structs.replace(EVERYWHERE, quiet_hours=(quiet,)))
    stage.tick()
    stage.policy = msgspec.structs.replace(stage.policy, version=2)
    stage.fail()
    stage.tick()
    assert stage.outbox.states(TOPIC) == [("dev.outscaler.group.failed", "open")]
    stage.policy = msgspec.structs.replace(stage.policy, notifications=EVERYWHERE)
    stage.tick()
    assert ("dev.outscaler.policy.changed", "once") in stage.outbox.states(TOPIC)


def test_OPS_7_sender_killed_after_sending_sends_the_same_id_again() -> None:
    stage = Stage(msgspec.structs.replace(EVERYWHERE, webhook=None, chat_topic=""))
    stage.fail()
    save, calls = stage.store.notices().save, []

    class KilledAfterSending:
        def load(self, cluster: str) -> tuple[bytes, str]:
            return stage.store.__class__.notices(stage.store).load(cluster)

        def save(self, cluster: str, data: bytes, expected: str) -> str:
            calls.append(cluster)
            if len(calls) == 2:
                raise SystemExit
            return save(cluster, data, expected)

    killed = KilledAfterSending()
    stage.store.notices = lambda: killed  # type: ignore[method-assign,return-value,assignment]
    with pytest.raises(SystemExit):
        stage.tick()
    del stage.store.notices
    stage.clock.advance(60)
    stage.tick()
    stage.tick()
    assert len(stage.outbox.sent) == 2
    assert stage.outbox.sent[0][1]["id"] == stage.outbox.sent[1][1]["id"]


def test_two_ticks_at_the_same_time_lose_nothing() -> None:
    stage = Stage()
    stage.fail()
    data, version = stage.store.notices().load(NAME)
    stage.tick()
    # the slower tick does not overwrite
    assert stage.store.notices().save(NAME, b"{}", version) == ""
    assert load_state(stage.store.notices().load(NAME)[0]).notices
    assert data == b""


def test_message_that_nobody_accepts_is_kept_as_lost() -> None:
    stage = Stage(msgspec.structs.replace(EVERYWHERE, webhook=None, chat_topic=""))
    stage.outbox.down = {TOPIC}
    stage.fail()
    for _ in range(13):
        stage.tick(2**17)
    state = load_state(stage.store.notices().load(NAME)[0])
    assert "group.failed" in {each.condition.type for each in state.dead}


def test_state_that_cannot_be_read_reports_again_and_stops_nothing() -> None:
    stage = Stage()
    stage.store.notices().save(NAME, b"rubbish", "")
    stage.fail()
    assert stage.tick() == 1


def test_foreign_texts_never_outgrow_the_row() -> None:
    stage = Stage()
    random_text = random.Random(1)
    texts = [
        "".join(chr(random_text.randrange(0x4E00, 0x9F00)) for _ in range(900)) for _ in range(200)
    ]
    groups = {
        f"g{at}": GroupMemory(backoff=Backoff(300.0, NOW + 9e5, NOW, text, text, text))
        for at, text in enumerate(texts)
    }
    stage.remember(Memory(groups=groups))
    stage.outbox.down = {TOPIC, CHAT, HOOK.url}
    for _ in range(3):
        stage.tick()
    assert len(load_state(stage.store.notices().load(NAME)[0]).messages) >= 20


def test_policy_and_mode_changes_are_single_events() -> None:
    stage = Stage()
    stage.tick()
    stage.policy = msgspec.structs.replace(in_mode(stage.policy, "shadow"), version=2)
    stage.tick()
    stage.tick()
    assert stage.outbox.states(TOPIC) == [
        ("dev.outscaler.policy.changed", "once"),
        ("dev.outscaler.mode.changed", "once"),
    ]


def test_no_message_names_a_secret() -> None:
    stage = Stage()
    access = KubernetesAccess(kubeconfig_secret="an-unusual-name")
    stage.policy = msgspec.structs.replace(stage.policy, kubernetes=access)
    words = (
        f"an-unusual-name is refused; secret outscaler/{NAME}/kubeconfig: does not exist; "
        "ssm:/outscaler/x/exoscale"
    )
    backoff = Backoff(300.0, NOW + 300, NOW, "Unauthorized", "an-unusual-name", words)
    stage.remember(Memory(groups={"gpu": GroupMemory(backoff=backoff)}))
    lease = stage.store.leases.acquire(NAME, "pass", 60)
    failure = PassFailure("Unauthorized", words, NOW - 300, NOW, 3)
    stage.store.leases.release(lease, passed_at=NOW, succeeded=False, failure=failure)
    stage.tick()
    assert {each["type"] for where, each in stage.outbox.sent if where == TOPIC} == {
        "dev.outscaler.group.failed",
        "dev.outscaler.cluster.unauthorized",
    }
    said = json.dumps(stage.outbox.sent) + stage.store.notices().load(NAME)[0].decode()
    assert [name for name in ("an-unusual-name", "/kubeconfig", "/exoscale") if name in said] == []


def test_vendors_text_stays_text_in_every_form() -> None:
    stage = Stage()
    words = "<!channel> [x](https://evil.example) \u202e\x00 " + "y" * 9000
    backoff = Backoff(300.0, NOW + 300, NOW, words[:40], words[:40], words)
    stage.remember(Memory(groups={"gpu": GroupMemory(backoff=backoff)}))
    stage.tick()
    for _, event in stage.outbox.sent:
        text = json.dumps(event, ensure_ascii=False)
        assert not any(mark in text for mark in ("\u202e", "\\u0000"))
        assert len(text) < 8000
    chat = next(each for where, each in stage.outbox.sent if where == CHAT)
    assert "[x](" not in chat["content"]["description"]


# -- the clients


def test_signature_is_that_of_standard_webhooks() -> None:
    key = base64.b64encode(b"k" * 24).decode()
    made = signature(f"whsec_{key}", "msg-1", "1700000000", b"{}")
    expected = hmac.new(b"k" * 24, b"msg-1.1700000000.{}", hashlib.sha256).digest()
    assert made == "v1," + base64.b64encode(expected).decode()


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:9/x", "https://169.254.169.254/latest", "https://[::1]:9/"]
)
def test_addresses_of_the_machine_are_never_reached(url: str) -> None:
    with pytest.raises(NotAccepted, match="no answer"):
        WebhookSender(permitted(loopback=False)).post(url, "0123456789abcdef", "id", NOW, b"{}")


def test_published_message_arrives_at_a_subscriber_with_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-2")
    with mock_aws():
        topic = boto3.client("sns").create_topic(Name="outscaler-events")["TopicArn"]
        queue = boto3.client("sqs").create_queue(QueueName="q")["QueueUrl"]
        arn = boto3.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])[
            "Attributes"
        ]["QueueArn"]
        boto3.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        TopicPublisher().publish(topic, '{"a": 1}', {"severity": "warning", "group": ""})
        body = json.loads(
            boto3.client("sqs").receive_message(QueueUrl=queue)["Messages"][0]["Body"]
        )
        assert (body["Message"], body["MessageAttributes"]["severity"]["Value"]) == (
            '{"a": 1}',
            "warning",
        )
        with pytest.raises(NotPublished, match="NotFound"):
            TopicPublisher().publish(topic + "-gone", "x", {})
