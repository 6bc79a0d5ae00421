"""POST /clusters/{name}/events: every status code, both authentication methods, and what responses
and logs must not reveal."""

from __future__ import annotations

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from app import app
from chalicelib.functions import webhook
from chalicelib.runtime.webhook_authentication import sign_body
from tests.functional.app_client import BEARER, HMAC, AppClient, line, sample

BODY = sample("core-v1-failed-scheduling")
GATHERED = BODY.replace(b"FailedScheduling", b"Evicted")


def test_relevant_signed_event_requests_a_reconcile(desk: AppClient) -> None:
    name = desk.cluster(secret={"hmac": HMAC})
    answer = desk.post(name, GATHERED)
    assert (answer.status_code, answer.json_body) == (
        202,
        {"accepted": 1, "matched": 1, "woken": True},
    )
    [(message, delay)] = desk.outbox.scans()
    assert (message.cluster, message.reason, delay) == (name, "webhook", 2)


def test_relevant_event_with_a_bearer_token_requests_a_reconcile(desk: AppClient) -> None:
    answer = desk.post(desk.cluster(), BODY, {"Authorization": f"Bearer {BEARER}"})
    assert (answer.status_code, answer.json_body["woken"]) == (202, True)


def test_plain_text_secret_is_valid_as_signature_key_and_token(desk: AppClient) -> None:
    name = desk.cluster(secret="one-value-for-both-forms\n")
    assert (
        desk.post(name, BODY, desk.signed(name, BODY, key="one-value-for-both-forms")).status_code
        == 202
    )
    assert (
        desk.post(name, BODY, {"Authorization": "bearer one-value-for-both-forms"}).status_code
        == 202
    )


@pytest.mark.parametrize("key", ["the-new-value-here", "the-old-value-here"])
def test_both_secret_values_are_accepted_during_a_rotation(desk: AppClient, key: str) -> None:
    name = desk.cluster(secret={"hmac": ["the-new-value-here", "the-old-value-here"]})
    assert desk.post(name, BODY, desk.signed(name, BODY, key=key)).status_code == 202


def test_rotated_secret_is_in_force_after_a_minute(desk: AppClient) -> None:
    name = desk.cluster(secret={"hmac": "the-old-value-here"})
    assert (
        desk.post(name, BODY, desk.signed(name, BODY, key="the-old-value-here")).status_code == 202
    )
    desk.put_secret(f"outscaler/{name}/webhook", {"hmac": "the-new-value-here"})
    desk.clock.advance(61)
    assert (
        desk.post(name, BODY, desk.signed(name, BODY, key="the-new-value-here")).status_code == 202
    )
    assert (
        desk.post(name, BODY, desk.signed(name, BODY, key="the-old-value-here")).status_code == 401
    )


def _wrong(desk: AppClient, name: str) -> dict[str, dict[str, str]]:
    right = desk.signed(name, BODY)
    return {
        "nothing": {},
        "another key": desk.signed(name, BODY, key="not-the-right-value"),
        "signature of another body": desk.signed(name, BODY + b" "),
        "no timestamp": {"X-Outscaler-Signature": right["X-Outscaler-Signature"]},
        "another timestamp": {**right, "X-Outscaler-Timestamp": str(int(desk.clock()) + 1)},
        "timestamp is not a number": {**right, "X-Outscaler-Timestamp": "now"},
        "too old": desk.signed(name, BODY, at=desk.clock() - 301),
        "from the future": desk.signed(name, BODY, at=desk.clock() + 301),
        "another algorithm": {name: value.replace("v2", "v1") for name, value in right.items()},
        "not hexadecimal": {**right, "X-Outscaler-Signature": "v2=zz"},
        "not ASCII": {**right, "X-Outscaler-Signature": "v2=\u00e9"},
        "for another cluster": desk.signed("shop-of-another-name", BODY),
        "of the body only": {
            **right,
            "X-Outscaler-Signature": sign_body(HMAC.encode(), right["X-Outscaler-Timestamp"], BODY),
        },
        "another token": {"Authorization": "Bearer not-the-right-token"},
        "empty token": {"Authorization": "Bearer "},
        "another scheme": {"Authorization": f"Basic {BEARER}"},
        "the hmac key as token": {"Authorization": f"Bearer {HMAC}"},
        "wrong signature beside a right token": {
            "Authorization": f"Bearer {BEARER}",
            **desk.signed(name, BODY, key="not-the-right-value"),
        },
    }


@pytest.mark.parametrize(
    "what",
    [
        "nothing",
        "another key",
        "signature of another body",
        "no timestamp",
        "another timestamp",
        "timestamp is not a number",
        "too old",
        "from the future",
        "another algorithm",
        "not hexadecimal",
        "not ASCII",
        "another token",
        "empty token",
        "another scheme",
        "the hmac key as token",
        "wrong signature beside a right token",
        "for another cluster",
        "of the body only",
    ],
)
def test_status_401_is_the_same_for_every_unauthenticated_caller(
    desk: AppClient, what: str
) -> None:
    name = desk.cluster()
    answer = desk.post(name, BODY, _wrong(desk, name)[what])
    assert answer.status_code == 401
    assert line(answer).startswith("Authorization: not accepted; sign the path, timestamp and body")
    assert desk.outbox.sent == []


@pytest.mark.parametrize("seconds", [-300, 300])
def test_signature_allows_five_minutes_of_clock_skew(desk: AppClient, seconds: int) -> None:
    name = desk.cluster()
    assert (
        desk.post(name, BODY, desk.signed(name, BODY, at=desk.clock() + seconds)).status_code == 202
    )


def test_signature_is_accepted_once(desk: AppClient) -> None:
    name = desk.cluster()
    headers = desk.signed(name, BODY)
    assert desk.post(name, BODY, headers).status_code == 202
    assert desk.post(name, BODY, headers).status_code == 401
    shouted = {key: value.upper().replace("V2", "v2") for key, value in headers.items()}
    assert desk.post(name, BODY, shouted).status_code == 401
    desk.clock.advance(599)  # the latest time at which its timestamp may still be accepted
    assert desk.post(name, BODY, headers).status_code == 401


def test_log_line_of_a_post_says_how_many_events_were_accepted_and_matched(
    desk: AppClient, log: io.StringIO
) -> None:
    ignored = GATHERED.replace(b"Evicted", b"Pulled")
    name = desk.cluster()
    body = b"[" + b",".join([GATHERED, ignored, ignored]) + b"]"
    assert desk.post(name, body, desk.signed(name, body)).status_code == 202
    [said] = [
        record
        for record in map(json.loads, log.getvalue().splitlines())
        if record["message"] == "webhook"
    ]
    assert (said["cluster"], said["accepted"], said["matched"], said["woken"]) == (name, 3, 1, True)


@pytest.mark.parametrize(
    "secret", ["", "short", '{"hmac": ""}', '{"hmac": "short"}', '{"bearer": ', '{"token": "x"}']
)
def test_unusable_webhook_secret_rejects_all_callers(
    desk: AppClient, secret: str, log: io.StringIO
) -> None:
    name = desk.cluster(secret=secret or " ")
    assert desk.post(name, BODY, desk.signed(name, BODY, key="")).status_code == 401
    assert desk.post(name, BODY, {"Authorization": "Bearer"}).status_code == 401
    assert desk.post(name, BODY, {"Authorization": "Bearer short"}).status_code == 401
    assert "webhook secret cannot be used" in log.getvalue()


@pytest.mark.parametrize("name", ["no-such-cluster", "-", "!policies", "%0aNOT A NAME", "x" * 300])
def test_status_404_for_an_event_of_a_cluster_without_a_policy(desk: AppClient, name: str) -> None:
    answer = desk.post(name, BODY)
    assert (answer.status_code, "not known" in line(answer)) == (404, True)
    assert desk.post(name, b"not json", {}).status_code == 404


@pytest.mark.parametrize(
    ("body", "place", "right"),
    [
        (b"", "body: Input data was truncated", "post an Event"),
        (b"not json", "body: JSON is malformed", "post an Event"),
        (BODY[:200], "body: Input data was truncated", "post an Event"),
        (b'{"kind": "Pod", "apiVersion": "v1"}', "body: v1 Pod is not an Event", "post an Event"),
        (
            b'{"reason": "FailedScheduling"}',
            "body: no apiVersion no kind is not an Event",
            "post an Event",
        ),
        (
            b'{"kind": "Event", "apiVersion": "v1", "reason": 7}',
            "body.reason: Expected `str | null`",
            "post an Event",
        ),
        (
            b'{"kind": "Event", "apiVersion": "v2", "reason": "x"}',
            "body: v2 Event is not an Event",
            "post an Event",
        ),
        (
            b'{"kind": "PodList", "apiVersion": "v1", "items": []}',
            "body.kind: 'PodList' with items",
            "post an Event",
        ),
        (
            b'[{"involvedObject": {"kind": 1}, "reason": "x"}]',
            "body[0].involvedObject.kind: Expected",
            "post an Event",
        ),
        (
            b'{"specversion": "0.3", "type": "x", "source": "acs.ecs"}',
            "body.specversion: '0.3' is not 1.0",
            "post an Event",
        ),
        (
            b'{"specversion": "1.0", "source": "acs.ecs"}',
            "body: Object missing required field `type`",
            "post an Event",
        ),
        (
            b'{"specversion": "1.0", "type": 7, "source": ""}',
            "body.type: Expected `str`",
            "post an Event",
        ),
        (
            b'{"specversion": {"a": 1}, "type": "x", "source": ""}',
            "body.specversion: Expected `str`",
            "post an Event",
        ),
        (b'[{"a": 1}, {"b": 2}]', "body: none of 2 events can be read", "post an Event"),
        (b"[" * 100_000, "body: ", "post an Event"),
        (b'{"kind": "Event", "apiVersion": "v1", "reason": "\xff"}', "body", "post an Event"),
    ],
)
def test_status_400_names_the_place_and_the_expected_value(
    desk: AppClient, body: bytes, place: str, right: str
) -> None:
    answer = desk.post(desk.cluster(), body)
    assert answer.status_code == 400
    assert line(answer).startswith(place)
    assert right in line(answer)
    assert desk.outbox.sent == []


@pytest.mark.parametrize(
    "body", [b"[]", b'{"kind": "EventList", "apiVersion": "v1", "items": null}']
)
def test_body_without_events_is_accepted_and_does_nothing(desk: AppClient, body: bytes) -> None:
    assert desk.post(desk.cluster(), body).json_body == {
        "accepted": 0,
        "matched": 0,
        "woken": False,
    }


def test_unreadable_event_among_many_is_listed_and_the_others_count(desk: AppClient) -> None:
    body = b'[{"involvedObject": {}, "reason": 7}, ' + BODY + b"]"
    answer = desk.post(desk.cluster(), body)
    assert answer.status_code == 202
    assert {key: answer.json_body[key] for key in ("accepted", "matched", "woken")} == {
        "accepted": 1,
        "matched": 1,
        "woken": True,
    }
    [gap] = answer.json_body["gaps"]
    assert answer.json_body["unread"] == 1
    assert gap.startswith("body[0].reason: Expected `str | null`, got `int`")


@pytest.mark.parametrize("name", ["known", "no-such-cluster"])
def test_status_413_for_more_than_256_kib_from_any_caller(desk: AppClient, name: str) -> None:
    cluster = desk.cluster() if name == "known" else name
    assert desk.post(cluster, b"x" * (webhook.MAX_BODY + 1), {}).status_code == 413
    assert (
        desk.post(cluster, b"x", {"Content-Length": str(webhook.MAX_BODY + 1)}).status_code == 413
    )


def test_body_of_exactly_256_kib_is_read(desk: AppClient) -> None:
    body = BODY + b" " * (webhook.MAX_BODY - len(BODY))
    assert desk.post(desk.cluster(), body).status_code == 202


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "text/plain",
        "application/octet-stream",
        "application/x-ndjson",
    ],
)
def test_body_of_any_content_type_is_read_as_bytes(desk: AppClient, content_type: str) -> None:
    name = desk.cluster()
    headers = {**desk.signed(name, BODY), "Content-Type": content_type}
    assert (
        desk.client.http.post(f"/clusters/{name}/events", headers=headers, body=BODY).status_code
        == 202
    )


def test_body_encoded_by_the_gateway_is_decoded(desk: AppClient) -> None:
    name = desk.cluster()
    event = {
        "requestContext": {
            "resourcePath": "/clusters/{name}/events",
            "httpMethod": "POST",
            "requestId": "r-1",
        },
        "pathParameters": {"name": name},
        "headers": desk.signed(name, BODY),
        "multiValueQueryStringParameters": None,
        "stageVariables": None,
        "body": base64.b64encode(BODY).decode(),
        "isBase64Encoded": True,
    }
    assert app(event, None)["statusCode"] == 202


def test_thousand_events_in_a_second_request_one_reconcile(desk: AppClient) -> None:
    name = desk.cluster()
    batch = b"[" + b",".join([GATHERED] * 10) + b"]"
    with ThreadPoolExecutor(4) as callers:
        answers = list(
            callers.map(
                lambda _: webhook.handle(
                    name, {"Authorization": f"Bearer {BEARER}"}, batch, desk.runtime
                ),
                range(100),
            )
        )
    assert sum(answer.body["matched"] for answer in answers) == 1000
    assert sum(answer.body["woken"] for answer in answers) == 1
    [(message, delay)] = desk.outbox.scans()
    assert message.at - delay == desk.clock()


def test_no_event_is_lost_between_two_debounce_windows(desk: AppClient) -> None:
    """A debounced event happened before its window's message becomes visible; the next
    event opens its own window."""
    name = desk.cluster(secret=BEARER)
    desk.apply(name, spec={"webhook": {"secret": f"outscaler/{name}/webhook", "debounce": "3s"}})
    opened: float | None = None
    for _ in range(40):
        answer = desk.post(name, GATHERED, {"Authorization": f"Bearer {BEARER}"})
        if answer.json_body["woken"]:
            opened = desk.clock()
        message, delay = desk.outbox.scans()[-1]
        assert opened is not None
        assert opened + delay >= desk.clock(), "an event after the pass it was counted for"
        assert message.at == opened + 3
        desk.clock.advance(0.25)
    assert len(desk.outbox.scans()) == 4


def unschedulable(desk: AppClient, waited: float, reason: str = "FailedScheduling") -> bytes:
    """An event about a pod that has waited for some seconds."""
    time = datetime.fromtimestamp(desk.clock() - waited, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return BODY.replace(b"FailedScheduling", reason.encode()).replace(
        b"2026-11-21T07:30:59.827226Z", time.encode()
    )


def test_first_refused_pod_is_not_debounced_and_those_right_after_it_are(desk: AppClient) -> None:
    name = desk.cluster(secret=BEARER)
    delays = []
    for after in (0.0, 1.0, 0.5, 1.0, 1.0):
        desk.clock.advance(after)
        woken = desk.post(
            name, unschedulable(desk, 0.0), {"Authorization": f"Bearer {BEARER}"}
        ).json_body["woken"]
        delays.append(desk.outbox.scans()[-1][1] if woken else None)
    assert delays == [0, 2, None, None, 0]


@pytest.mark.parametrize(
    ("reason", "waited", "delay"),
    [
        pytest.param("FailedScheduling", 0.0, 0, id="refused-now"),
        pytest.param("FailedScheduling", 8.0, 0, id="refused-a-moment-ago"),
        pytest.param("FailedScheduling", 12.0, 10, id="refused-again"),
        pytest.param("Evicted", 0.0, 10, id="another-reason"),
    ],
)
def test_only_a_new_refusal_begins_a_pass_at_once(
    desk: AppClient, reason: str, waited: float, delay: int
) -> None:
    name = desk.cluster(secret=BEARER)
    desk.apply(name, spec={"webhook": {"secret": f"outscaler/{name}/webhook", "debounce": "10s"}})
    desk.post(name, unschedulable(desk, waited, reason), {"Authorization": f"Bearer {BEARER}"})
    assert [each for _, each in desk.outbox.scans()] == [delay]


def test_refused_prompt_request_leaves_the_next_one_prompt(desk: AppClient) -> None:
    name = desk.cluster(secret=BEARER)
    desk.outbox.full.add("reconcile")
    body = unschedulable(desk, 0.0)
    assert desk.post(name, body, {"Authorization": f"Bearer {BEARER}"}).status_code == 503
    desk.outbox.full.clear()
    desk.post(name, body, {"Authorization": f"Bearer {BEARER}"})
    assert [delay for _, delay in desk.outbox.scans()] == [0]


def test_irrelevant_event_requests_no_reconcile(desk: AppClient) -> None:
    body = BODY.replace(b"FailedScheduling", b"Pulled")
    assert desk.post(desk.cluster(), body).json_body == {
        "accepted": 1,
        "matched": 0,
        "woken": False,
    }
    assert desk.outbox.sent == []


def test_policy_lists_the_relevant_event_reasons(desk: AppClient) -> None:
    name = desk.cluster(secret={"hmac": HMAC})
    desk.apply(
        name, spec={"webhook": {"secret": f"outscaler/{name}/webhook", "reasons": ["Pulled"]}}
    )
    assert desk.post(name, BODY).json_body["matched"] == 0
    assert desk.post(name, BODY.replace(b"FailedScheduling", b"Pulled")).json_body["matched"] == 1


@pytest.mark.parametrize(("mode", "woken"), [("off", False), ("shadow", True), ("active", True)])
def test_event_of_a_cluster_that_is_off_requests_no_reconcile(
    desk: AppClient, mode: str, woken: bool
) -> None:
    assert desk.post(desk.cluster(mode=mode), BODY).json_body["woken"] is woken


def test_policy_without_a_webhook_section_rejects_all_events(desk: AppClient) -> None:
    name = desk.cluster()
    desk.apply(name, spec={"webhook": {}})
    assert desk.post(name, BODY).status_code == 401


def test_unreadable_stored_policy_rejects_all_events(desk: AppClient, log: io.StringIO) -> None:
    name = desk.cluster()
    desk.store_text(name, "kind: Cluster")
    assert desk.post(name, BODY).status_code == 401
    assert "stored policy cannot be used" in log.getvalue()


def test_status_503_when_the_queue_fails_reveals_no_cause(desk: AppClient) -> None:
    desk.outbox.full.add("reconcile")
    answer = desk.post(desk.cluster(), BODY)
    assert answer.status_code == 503
    assert line(answer).startswith("temporarily unavailable, try again; request ")


def test_no_secret_is_ever_logged(desk: AppClient, log: io.StringIO) -> None:
    name = desk.cluster()
    right = desk.signed(name, BODY)
    for headers in (
        right,
        right,
        desk.signed(name, BODY, key="a-guess-at-the-value"),
        {"Authorization": f"Bearer {BEARER}"},
        {"Authorization": "Bearer a-guess-at-the-token"},
    ):
        desk.post(name, BODY, headers)
    desk.post(name, b"{", desk.signed(name, b"{"))
    desk.post("no-such-cluster", BODY, right)
    said = log.getvalue()
    assert said.count("\n") >= 5
    for secret in (HMAC, BEARER, right["X-Outscaler-Signature"].removeprefix("v2="), "a-guess-at"):
        assert secret not in said
    assert all(
        secret not in repr(desk.runtime.webhook_credentials.for_cluster(name))
        for secret in (HMAC, BEARER)
    )
