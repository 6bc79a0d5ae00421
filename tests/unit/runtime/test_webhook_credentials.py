"""AWS calls of the webhook's cache, and how much of it a process keeps in memory."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from chalicelib.model.errors import BadInput
from chalicelib.runtime.active_policy import read
from chalicelib.runtime.webhook_authentication import (
    AuthResult,
    WebhookKeys,
    read_keys,
    sign,
    sign_body,
    verify,
)
from chalicelib.runtime.webhook_credentials import MAX_DOORS, MAX_POLICIES, WebhookCredentials
from chalicelib.store.policies import StoredPolicy, StoredWebhook
from infra.emulators.controllers.clock import ManualClock
from tests.cases import each_row

KEY = "key-value-for-tests"
TEXT = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  kubernetes: {kubeconfigSecret: outscaler/shop/kubeconfig}
  providers: {clusterapi: {namespace: capi}}
  webhook: {secret: outscaler/shop/webhook}
"""


class WebhookDoorsState:
    """Tables and a secrets store that record the calls they receive."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_795_245_654.0)
        self.webhooks = {"shop": StoredWebhook(1, "outscaler/shop/webhook")}
        self.policies = {"shop": StoredPolicy("shop", 1, TEXT, "", 0.0)}
        self.secrets = {"outscaler/shop/webhook": KEY}
        self.asked: list[str] = []
        self.put_back = 0.0
        self.doors = WebhookCredentials(
            webhooks=self._webhooks,
            current=self._current,
            load=read,
            read_secret=self._secret,
            clock=lambda: self.clock() - self.put_back,
        )

    def _webhooks(self) -> dict[str, StoredWebhook]:
        self.asked.append("webhooks")
        return dict(self.webhooks)

    def _current(self, name: str) -> StoredPolicy | None:
        self.asked.append("policy")
        return self.policies.get(name)

    def _secret(self, name: str) -> str:
        self.asked.append("secret")
        if name not in self.secrets:
            raise BadInput(f"secret {name}", "does not exist")
        return self.secrets[name]

    def asked_for(self, name: str) -> list[str]:
        """Returns the AWS calls that one request for that name causes."""
        self.asked.clear()
        self.doors.for_cluster(name)
        return list(self.asked)


def test_webhook_cache_name_costs_one_query_a_minute_and_known_name_its_secret() -> None:
    world = WebhookDoorsState()
    assert world.asked_for("nobody") == ["webhooks"]
    assert world.asked_for("shop") == ["secret"]
    assert world.asked_for("shop") == world.asked_for("nobody") == world.asked_for("x" * 9999) == []
    world.clock.advance(60)
    assert world.asked_for("NOT A NAME") == ["webhooks"]
    assert world.asked_for("shop") == ["secret"]
    assert world.asked_for("shop") == world.asked_for("nobody") == []


def test_webhook_cache_does_not_live_longer_when_the_clock_is_set_back() -> None:
    world = WebhookDoorsState()
    world.doors.for_cluster("shop")
    world.put_back = 3600.0
    assert world.asked_for("shop") == ["webhooks", "secret"]


def test_webhook_cache_reads_a_policy_once_a_minute_for_authenticated_callers() -> None:
    world = WebhookDoorsState()
    policy = world.doors.policy("shop")
    assert policy is not None
    assert policy.webhook.secret == "outscaler/shop/webhook"
    assert world.asked == ["webhooks", "policy"]
    assert world.doors.policy("shop") is policy
    assert world.doors.policy("nobody") is None
    assert world.asked == ["webhooks", "policy"]
    world.clock.advance(60)
    world.doors.policy("shop")
    assert world.asked == ["webhooks", "policy"] * 2


def test_webhook_cache_retries_an_unreadable_secret_once_a_minute() -> None:
    world = WebhookDoorsState()
    world.secrets.clear()
    assert world.asked_for("shop") == ["webhooks", "secret"]
    assert world.asked_for("shop") == []
    assert world.doors.for_cluster("shop").keys == WebhookKeys()


def test_webhook_cache_reads_the_policy_text_where_only_it_names_the_secret() -> None:
    world = WebhookDoorsState()
    world.webhooks["shop"] = StoredWebhook(1, None)
    assert world.asked_for("shop") == ["webhooks", "policy", "secret"]
    assert world.doors.for_cluster("shop").keys.hmac == (KEY.encode(),)
    assert world.asked_for("shop") == []


def test_webhook_cache_has_keys_only_for_known_names() -> None:
    world = WebhookDoorsState()
    assert world.doors.for_cluster("shop").keys == WebhookKeys((KEY.encode(),), (KEY.encode(),))
    stranger = world.doors.for_cluster("nobody")
    assert (stranger.known, stranger.keys) == (False, WebhookKeys())


def test_webhook_cache_uses_a_new_policy_version_within_a_minute() -> None:
    world = WebhookDoorsState()
    world.doors.for_cluster("shop")
    world.webhooks["shop"] = StoredWebhook(2, "outscaler/shop/webhook-moved")
    world.secrets["outscaler/shop/webhook-moved"] = "another-value-for-tests"
    world.clock.advance(60)
    assert world.doors.for_cluster("shop").keys.hmac == (b"another-value-for-tests",)
    del world.webhooks["shop"]
    world.clock.advance(60)
    assert not world.doors.for_cluster("shop").known


def _remembered(doors: WebhookCredentials) -> int:
    """Returns how many values each part of the cache holds."""
    return len(doors._known) + len(doors._keys._values) + len(doors._policies._values)


def test_webhook_cache_keeps_nothing_of_a_flood_of_unknown_names() -> None:
    world = WebhookDoorsState()
    world.doors.for_cluster("shop")
    before = _remembered(world.doors)
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(lambda number: world.doors.for_cluster(f"name-{number}"), range(5_000)))
    assert _remembered(world.doors) == before
    assert Counter(world.asked) == {"webhooks": 1, "secret": 1}


def test_webhook_cache_memory_is_bounded_for_many_clusters() -> None:
    world = WebhookDoorsState()
    names = [f"shop-{number}" for number in range(MAX_DOORS + 20)]
    for name in names:
        world.webhooks[name] = StoredWebhook(1, "outscaler/shop/webhook")
        world.policies[name] = StoredPolicy(name, 1, TEXT, "", 0.0)
    with ThreadPoolExecutor(8) as callers:
        list(
            callers.map(
                lambda name: (world.doors.for_cluster(name), world.doors.policy(name)), names
            )
        )
    assert _remembered(world.doors) == len(names) + 1 + MAX_DOORS + MAX_POLICIES
    assert world.asked.count("webhooks") == 1


def test_webhook_cache_no_repr_shows_a_key() -> None:
    world = WebhookDoorsState()
    assert KEY not in repr(world.doors.for_cluster("shop"))
    assert repr(WebhookKeys((KEY.encode(),))) == "Keys(***)"


def test_webhook_signature_covers_method_path_timestamp_and_body() -> None:
    """The test computes the signature as an exporter does."""
    signed = b'v2\nPOST\n/clusters/shop/events\n1795245654\n{"kind":"Event"}'
    expected = hmac.new(KEY.encode(), signed, hashlib.sha256).hexdigest()
    assert sign(KEY.encode(), "shop", "1795245654", b'{"kind":"Event"}') == f"v2={expected}"
    expected = hmac.new(KEY.encode(), b'1795245654.{"kind":"Event"}', hashlib.sha256).hexdigest()
    assert sign_body(KEY.encode(), "1795245654", b'{"kind":"Event"}') == f"sha256={expected}"


_OPEN = '{"hmac": "key-value-for-tests", "bodySignatures": true}'
_SHUT = '{"hmac": "key-value-for-tests"}'


@each_row(
    ("secret", "verdict"),
    [
        (_OPEN, AuthResult.ACCEPTED),
        (_SHUT, AuthResult.OLDER),
        (KEY, AuthResult.OLDER),
    ],
)
def test_webhook_body_only_signature_counts_only_if_the_secret_allows_it(
    secret: str, verdict: AuthResult
) -> None:
    keys = read_keys(secret, "secret")
    headers = {
        "x-outscaler-timestamp": "100",
        "x-outscaler-signature": sign_body(KEY.encode(), "100", b"body"),
    }
    assert verify("shop", headers, b"body", keys, b"decoy", 100.0).verdict is verdict
    newer = {
        "x-outscaler-timestamp": "100",
        "x-outscaler-signature": sign(KEY.encode(), "shop", "100", b"body"),
    }
    assert verify("shop", newer, b"body", keys, b"decoy", 100.0).verdict is AuthResult.ACCEPTED
    assert verify("other", newer, b"body", keys, b"decoy", 100.0).verdict is AuthResult.WRONG


@each_row("relabelled", ["v2", "sha256"])
def test_webhook_digest_of_one_signature_format_is_invalid_in_another(relabelled: str) -> None:
    keys = read_keys(_OPEN, "secret")
    digests = {
        "sha256": sign(KEY.encode(), "shop", "100", b"body"),
        "v2": sign_body(KEY.encode(), "100", b"body"),
    }
    given = f"{relabelled}={digests[relabelled].partition('=')[2]}"
    headers = {"x-outscaler-timestamp": "100", "x-outscaler-signature": given}
    assert verify("shop", headers, b"body", keys, b"decoy", 100.0).verdict is AuthResult.WRONG


@each_row(
    "keys",
    [
        WebhookKeys(),
        WebhookKeys((b"another-value-here",)),
        WebhookKeys((b"one-value-is-here", b"two-values-are-here")),
    ],
)
def test_webhook_decoy_key_is_never_accepted(keys: WebhookKeys) -> None:
    """The decoy for missing keys is compared with signatures but never accepted."""
    decoy = b"decoy-that-was-guessed"
    for signature in (sign(decoy, "shop", "100", b"body"), sign_body(decoy, "100", b"body")):
        signed = {"x-outscaler-timestamp": "100", "x-outscaler-signature": signature}
        assert verify("shop", signed, b"body", keys, decoy, 100.0).verdict is AuthResult.WRONG
    borne = {"authorization": f"Bearer {decoy.decode()}"}
    assert verify("shop", borne, b"body", keys, decoy, 100.0).verdict is AuthResult.WRONG
