"""Whose door it is: the cluster's policy in force and the keys that open it.

A cluster that is not known gets a door too, one that never opens: the same lookups, the same parsing, the same digests
against a random key. So the time until the answer does not tell which clusters exist. Known or not, a name's first
knock in a process reads a policy and asks for a secret, and later ones do so again once a minute: that is also how soon
a rotated secret is in force everywhere.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from chalicelib.dispatch.messages import cluster_name_ok
from chalicelib.handlers.log import logger
from chalicelib.handlers.webhook.keys import Keys, read_keys
from chalicelib.model.deployment import STRICT, Deployment
from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy import Policy
from chalicelib.policy.secret_names import WEBHOOK, ClusterSecrets

KEPT_FOR = 60.0
MAX_DOORS = 512

#: Looked up where a name is none at all; no cluster can be called so.
_NOBODY = "-"
_DECOY_SECRET = "outscaler/-/webhook"  # noqa: S105 - the name of a secret that does not exist, not a secret
_DECOY_TEXT = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: nobody}
spec:
  mode: shadow
  kubernetes: {eksCluster: nobody}
  providers: {clusterapi: {namespace: nobody}}
"""


class Document(msgspec.Struct, frozen=True):
    """A stored policy as the door needs it: its text, and what tells whether it has changed."""

    text: str
    version: int


_DECOY = Document(_DECOY_TEXT, 0)


@dataclass(frozen=True)
class Door:
    """known: whether there is such a cluster. policy: None where there is none, or none that can be read."""

    known: bool
    policy: Policy | None
    keys: Keys


@dataclass(frozen=True)
class _Kept:
    door: Door
    version: int
    until: float


class Doors:
    """The doors of this process, at most MAX_DOORS of them.

    current: cluster name -> its stored policy, None if there is none. load: text, name, version -> Policy.
    """

    def __init__(
        self,
        *,
        current: Callable[[str], Document | None],
        load: Callable[[str, str, int], Policy],
        read_secret: Callable[[str], str],
        clock: Callable[[], float],
        deployment: Deployment = STRICT,
    ) -> None:
        self._current, self._load, self._read_secret, self._clock = current, load, read_secret, clock
        self._deployment = deployment
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.decoy = secrets.token_bytes(32)

    def at(self, name: str) -> Door:
        """The door of this name; raises StoreError if the table cannot be read, and nothing else."""
        lookup = name if cluster_name_ok(name) else _NOBODY
        stored = self._current(lookup)
        version = stored.version if stored else 0
        kept = self._kept.get(lookup)
        if kept is None or kept.version != version or kept.until <= self._clock():
            kept = _Kept(self._made(lookup, stored), version, self._clock() + KEPT_FOR)
            self._kept[lookup] = kept
        self._kept.move_to_end(lookup)
        while len(self._kept) > MAX_DOORS:
            self._kept.popitem(last=False)
        return kept.door

    def _made(self, name: str, stored: Document | None) -> Door:
        policy = self._policy(name, stored or _DECOY)
        secret = policy.webhook.secret if policy else ""
        keys = self._keys(name, secret or _DECOY_SECRET, quiet=stored is None)
        if stored is None:
            return Door(known=False, policy=None, keys=Keys())
        return Door(known=True, policy=policy, keys=keys if secret else Keys())

    def _policy(self, name: str, stored: Document) -> Policy | None:
        try:
            return self._load(stored.text, name, stored.version)
        except OutscalerError as error:
            logger.error("stored policy cannot be used", cluster=name, detail=str(error))
            return None

    def _keys(self, name: str, secret: str, *, quiet: bool) -> Keys:
        # A cluster that is not known has no secret of its own; the one that is asked for in its place does not exist.
        read = self._read_secret if secret == _DECOY_SECRET else ClusterSecrets(
            self._read_secret, name, (WEBHOOK,), self._deployment)
        try:
            return read_keys(read(secret), secret)
        except OutscalerError as error:
            if not quiet and secret != _DECOY_SECRET:
                logger.error("webhook secret cannot be used", cluster=name, secret_name=secret, detail=str(error))
            return Keys()
