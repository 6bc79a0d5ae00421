"""AWS cost of an unauthenticated caller: one query a minute and few reads of a
secret, whatever is sent.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from chalicelib.policy.load import digest
from chalicelib.runtime.messages import Cause
from chalicelib.runtime.runtime import install
from chalicelib.runtime.wakeup import request_reconcile
from chalicelib.runtime.webhook_authentication import sign_body
from chalicelib.store.tables import DebounceRow
from tests.functional.app_client import BEARER, HMAC, AppClient, sample

BODY = sample("core-v1-failed-scheduling")
GATHERED = BODY.replace(b"FailedScheduling", b"Evicted")
DOCUMENT = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: %s}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/%s/kubeconfig}
  providers: {clusterapi: {namespace: capi}}
  webhook: {secret: outscaler/%s/webhook, debounce: %s}
"""


class Bill:
    """Calls to AWS: the count of each operation, and the bytes of items in the answers."""

    def __init__(self, *clients: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.bytes = 0
        self._clients = clients
        self._hooks = {"provide-client-params": self._asked, "after-call": self._answered}

    def __enter__(self) -> Bill:
        for client in self._clients:
            for event, hook in self._hooks.items():
                client.meta.events.register(f"{event}.*.*", hook)
        return self

    def __exit__(self, *error: object) -> None:
        for client in self._clients:
            for event, hook in self._hooks.items():
                client.meta.events.unregister(f"{event}.*.*", hook)

    def _asked(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        weak = params.get("ConsistentRead") is False
        self.calls[model.name + (", eventually consistent" if weak else "")] += 1

    def _answered(self, parsed: Mapping[str, Any], **_: Any) -> None:
        self.bytes += len(
            json.dumps([parsed.get("Items", []), parsed.get("Item", {})], default=str)
        )


@pytest.fixture
def cold(desk: AppClient) -> Iterator[AppClient]:
    """Resets the process state, so that nothing has been read yet."""
    fresh = desk.premises.desk()
    install(fresh.runtime)
    yield fresh
    install(None)


def _bill(desk: AppClient) -> Bill:
    return Bill(desk.store.table.client, desk.premises.secrets)


def _cluster(
    desk: AppClient, *, debounce: str = "2s", secret: object = None, padding: int = 0
) -> str:
    """A policy as `outscaler apply` stores it; padding: bytes of comments in it."""
    desk.clock.advance(61.0)
    name = f"shop-{len(desk.store.policies.webhooks())}-{int(desk.clock())}"
    text = DOCUMENT % (name, name, name, debounce) + "".join(
        "# nothing\n" for _ in range(padding // 10)
    )
    desk.put_secret(
        f"outscaler/{name}/webhook", {"hmac": HMAC, "bearer": BEARER} if secret is None else secret
    )
    desk.store.policies.put(name, text, digest(text), None, webhook=f"outscaler/{name}/webhook")
    return name


def test_thousand_unknown_names_cost_one_small_query(cold: AppClient) -> None:
    for _ in range(3):
        _cluster(cold, padding=200_000)
    with _bill(cold) as bill:
        for number in range(1_000):
            assert cold.post(f"no-such-cluster-{number}", BODY).status_code == 404
    assert bill.calls == {"Query, eventually consistent": 1}
    assert bill.bytes < 5_000, "the policies' texts are not read"


def test_thousand_wrong_signatures_cost_one_query_and_two_secret_reads(cold: AppClient) -> None:
    name = _cluster(cold, padding=200_000)
    with _bill(cold) as bill:
        for number in range(500):
            wrong = cold.signed(name, BODY, key=f"a-guess-at-the-value-{number}")
            assert cold.post(name, BODY, wrong).status_code == 401
            assert (
                cold.post(name, BODY, {"Authorization": f"Bearer guess-{number}"}).status_code
                == 401
            )
    assert bill.calls == {"Query, eventually consistent": 1, "GetSecretValue": 2}
    assert bill.bytes < 5_000, "the policy's text is not read"


def test_ten_minute_unauthenticated_flood_costs_a_query_a_minute_and_one_secret(
    cold: AppClient,
) -> None:
    name = _cluster(cold)
    with _bill(cold) as bill:
        for number in range(600):
            assert cold.post(f"unknown-{number}", BODY).status_code == 404
            assert cold.post(name, BODY, {}).status_code == 401
            cold.clock.advance(1.0)
    assert bill.calls == {"Query, eventually consistent": 10, "GetSecretValue": 1}


def test_authenticated_caller_causes_one_policy_read_a_minute(cold: AppClient) -> None:
    name = _cluster(cold)
    with _bill(cold) as bill:
        for number in range(20):
            uninteresting = BODY.replace(b"FailedScheduling", b"Pulled") + b" " * number
            assert (
                cold.post(name, uninteresting, {"Authorization": f"Bearer {BEARER}"}).status_code
                == 202
            )
    assert bill.calls == {
        "Query, eventually consistent": 1,
        "GetSecretValue": 1,
        "GetItem, eventually consistent": 2,
    }, "the policy and the schema"


@pytest.mark.parametrize(
    ("debounce", "every", "messages"),
    [
        ("0s", 0.0, 1),
        ("0s", 0.25, 15),
        ("500ms", 0.25, 15),
        ("0s", 1.0, 20 + 6),
        ("2s", 0.25, 8),
    ],
)
def test_sixty_events_cause_at_most_one_message_a_second(
    cold: AppClient, debounce: str, every: float, messages: int
) -> None:
    name = _cluster(cold, debounce=debounce)
    with _bill(cold) as bill:
        for number in range(60):
            assert cold.post(name, GATHERED + b" " * number).status_code == 202
            cold.clock.advance(every)
    assert len(cold.outbox.scans()) == messages
    assert all(delay >= 1 for _, delay in cold.outbox.scans())
    assert bill.calls["PutItem"] == 60 + messages


@pytest.mark.parametrize(
    ("body", "debounce", "every"), [(GATHERED, "2s", 1.0), (BODY, "2s", 1.0), (BODY, "0s", 7.0)]
)
def test_events_cause_20_passes_and_then_one_in_10_seconds_at_most(
    cold: AppClient, body: bytes, debounce: str, every: float
) -> None:
    name = _cluster(cold, debounce=debounce)
    began, minutes = cold.clock(), 5
    for number in range(int(minutes * 60 / every)):
        assert cold.post(name, body + b" " * number).status_code == 202
        cold.clock.advance(every)
    due = sorted(message.at - began for message, _ in cold.outbox.scans())
    assert len(due) <= 20 + minutes * 6
    assert len(due) >= min(20 + minutes * 6 - 2, minutes * 60 // every)
    assert max(later - earlier for earlier, later in pairwise(due)) <= 10.0 + max(every, 1.0), (
        "no event waits longer"
    )
    assert max(delay for _, delay in cold.outbox.scans()) <= 10


def test_burst_of_wake_ups_is_full_again_after_200_seconds(cold: AppClient) -> None:
    name = _cluster(cold, debounce="0s")

    def woken() -> int:
        before = len(cold.outbox.scans())
        for number in range(30):
            cold.post(name, GATHERED + b" " * number)
            cold.clock.advance(1.0)
        return len(cold.outbox.scans()) - before

    assert woken() == 20 + 3
    cold.clock.advance(200.0)
    assert woken() == 20 + 3


def test_ends_of_operations_and_people_wake_a_cluster_beyond_the_limit_of_events(
    cold: AppClient,
) -> None:
    name = _cluster(cold, debounce="0s")
    for number in range(40):
        cold.post(name, GATHERED + b" " * number)
        cold.clock.advance(1.0)
    cold.clock.advance(10.0)
    cold.post(name, GATHERED)
    cold.clock.advance(10.0)
    policy = cold.runtime.policy(name)
    assert policy is not None
    assert request_reconcile(policy, Cause.OPERATION, cold.runtime)
    assert cold.outbox.scans()[-1][1] == 1


def test_events_that_wake_nothing_cost_no_write_but_the_record_of_a_signature(
    cold: AppClient,
) -> None:
    name = _cluster(cold)
    uninteresting = BODY.replace(b"FailedScheduling", b"Pulled")
    with _bill(cold) as bill:
        for number in range(10):
            assert cold.post(name, uninteresting + b" " * number).status_code == 202
        for number in range(10):
            headers = {"Authorization": f"Bearer {BEARER}"}
            assert cold.post(name, uninteresting + b" " * number, headers).status_code == 202
    assert bill.calls["PutItem"] == 10
    assert not {"UpdateItem", "DeleteItem"} & bill.calls.keys()


def test_changed_webhook_configuration_applies_after_a_minute(cold: AppClient) -> None:
    name = "shop-of-tomorrow"
    assert cold.post(name, BODY).status_code == 404
    text = DOCUMENT % (name, name, name, "2s")
    cold.put_secret(f"outscaler/{name}/webhook", {"hmac": HMAC})
    cold.store.policies.put(name, text, digest(text), None, webhook=f"outscaler/{name}/webhook")
    assert cold.post(name, BODY).status_code == 404
    cold.clock.advance(60.0)
    assert cold.post(name, BODY).status_code == 202


def test_request_for_one_cluster_is_invalid_for_another_with_the_same_secret(
    cold: AppClient,
) -> None:
    one, other = _cluster(cold), _cluster(cold)
    headers = cold.signed(one, BODY)
    assert cold.post(other, BODY, headers).status_code == 401
    assert cold.post(one, BODY, headers).status_code == 202


def _older(desk: AppClient) -> dict[str, str]:
    timestamp = str(int(desk.clock()))
    return {
        "X-Outscaler-Timestamp": timestamp,
        "X-Outscaler-Signature": sign_body(HMAC.encode(), timestamp, BODY),
    }


def test_signature_of_the_body_alone_needs_the_secrets_consent_and_counts_once(
    cold: AppClient,
) -> None:
    strict, open_ = _cluster(cold), _cluster(cold, secret={"hmac": HMAC, "bodySignatures": True})
    headers = _older(cold)
    assert cold.post(strict, BODY, headers).status_code == 401
    assert cold.post(open_, BODY, headers).status_code == 202
    assert cold.post(open_, BODY, headers).status_code == 401


def test_request_processed_by_an_older_release_is_rejected_after_the_upgrade(
    cold: AppClient,
) -> None:
    name = _cluster(cold, secret={"hmac": HMAC, "bodySignatures": True})
    headers = _older(cold)
    older = dataclasses.replace(cold.runtime).store.debounce
    assert older.first_use(name, headers["X-Outscaler-Signature"], 600, kind="marker")
    [row] = list(cold.store.table.query(name, "seen#marker#"))
    item = row["item"]["S"].replace("seen#marker#", "seen#signature#")
    cold.store.table.write(cold.store.table.put(DebounceRow(name, item, until=cold.clock() + 600)))
    assert cold.post(name, BODY, headers).status_code == 401
    assert cold.outbox.sent == []


def test_debounce_row_that_ends_later_than_any_window_is_ignored(cold: AppClient) -> None:
    name = _cluster(cold)
    assert cold.post(name, BODY).json_body["woken"]
    [row] = list(cold.store.table.query("!web", f"seen#wake#{name}#"))
    cold.store.table.write(
        cold.store.table.put(DebounceRow("!web", row["item"]["S"], until=cold.clock() + 1e6))
    )
    assert cold.post(name, BODY + b" ").json_body["woken"]
