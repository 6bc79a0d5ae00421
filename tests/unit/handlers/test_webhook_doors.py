"""Known or not, a door costs the same: the same lookups, in the same order, as often."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from chalicelib.handlers.policies import read
from chalicelib.handlers.webhook.doors import MAX_DOORS, Document, Doors
from chalicelib.handlers.webhook.keys import Keys
from chalicelib.handlers.webhook.verify import Verdict, sign, verify
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy
from infra.local.controllers.clock import ManualClock

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


class World:
    """A table and a secrets store that write down what they are asked."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_795_245_654.0)
        self.policies = {"shop": Document(TEXT, 1)}
        self.secrets = {"outscaler/shop/webhook": KEY}
        self.asked: list[str] = []
        self.doors = Doors(current=self._current, load=self._load, read_secret=self._secret, clock=self.clock)

    def _current(self, name: str) -> Document | None:
        self.asked.append("table")
        return self.policies.get(name)

    def _load(self, text: str, name: str, version: int) -> Policy:
        self.asked.append("policy")
        return read(text, name, version)

    def _secret(self, name: str) -> str:
        self.asked.append("secret")
        if name not in self.secrets:
            raise BadInput(f"secret {name}", "does not exist")
        return self.secrets[name]

    def asked_for(self, name: str) -> list[str]:
        """What one knock at that name costs."""
        self.asked.clear()
        self.doors.at(name)
        return list(self.asked)


def test_an_unknown_name_costs_what_a_known_one_costs() -> None:
    world = World()
    assert world.asked_for("shop") == world.asked_for("nobody") == ["table", "policy", "secret"]
    assert world.asked_for("NOT A NAME") == ["table", "policy", "secret"]
    assert world.asked_for("shop") == world.asked_for("nobody") == world.asked_for("x" * 9999) == ["table"]
    world.clock.advance(60)
    assert world.asked_for("shop") == world.asked_for("nobody") == ["table", "policy", "secret"]
    assert world.asked_for("shop") == world.asked_for("nobody") == ["table"]


def test_only_the_known_door_has_keys() -> None:
    world = World()
    assert world.doors.at("shop").keys == Keys((KEY.encode(),), (KEY.encode(),))
    stranger = world.doors.at("nobody")
    assert (stranger.known, stranger.policy, stranger.keys) == (False, None, Keys())


def test_a_new_version_of_the_policy_counts_at_once() -> None:
    world = World()
    world.doors.at("shop")
    world.policies["shop"] = Document(TEXT.replace("shop/webhook", "shop/webhook-moved"), 2)
    world.secrets["outscaler/shop/webhook-moved"] = "another-value-for-tests"
    assert world.doors.at("shop").keys.hmac == (b"another-value-for-tests",)
    del world.policies["shop"]
    assert not world.doors.at("shop").known


def test_a_flood_of_names_is_not_remembered_for_ever() -> None:
    world = World()
    for number in range(MAX_DOORS + 50):
        world.doors.at(f"name-{number}")
    assert world.asked_for("name-0") == ["table", "policy", "secret"]
    assert world.asked_for(f"name-{MAX_DOORS + 49}") == ["table"]


def test_no_repr_shows_a_key() -> None:
    world = World()
    assert KEY not in repr(world.doors.at("shop"))
    assert repr(Keys((KEY.encode(),))) == "Keys(***)"


def test_the_signature_is_hmac_sha256_over_timestamp_dot_body() -> None:
    """Computed here by hand, as an exporter would."""
    expected = hmac.new(KEY.encode(), b"1795245654." + b'{"kind":"Event"}', hashlib.sha256).hexdigest()
    assert sign(KEY.encode(), "1795245654", b'{"kind":"Event"}') == f"sha256={expected}"


@pytest.mark.parametrize("keys", [
    Keys(), Keys((b"another-value-here",)), Keys((b"one-value-is-here", b"two-values-are-here")),
])
def test_the_decoy_key_opens_nothing(keys: Keys) -> None:
    """What stands in for missing keys is compared with, but never accepted."""
    decoy = b"decoy-that-was-guessed"
    signed = {"x-outscaler-timestamp": "100", "x-outscaler-signature": sign(decoy, "100", b"body")}
    assert verify(signed, b"body", keys, decoy, 100.0).verdict is Verdict.WRONG
    borne = {"authorization": f"Bearer {decoy.decode()}"}
    assert verify(borne, b"body", keys, decoy, 100.0).verdict is Verdict.WRONG
