"""The webhook's cache of cluster names, the keys that callers must have, and policies.

The webhook is public: anyone may call it, with any name and any credentials. An unauthenticated
call must therefore cause no call to AWS. One query a minute reads the webhook's part of
all policies: the names and the webhooks' secret names, in rows whose size does not depend on the
policies. It serves known and unknown names alike, so the size of the cache is bounded by the
clusters of the deployment and not by the names in requests. A known cluster's secret is read once
in ten minutes, and its policy only for authenticated callers.

A signature or token that does not match may be made with a secret that was just rotated. The secret
is then read again at once, at most twice a minute for each cluster, so that a flood of invalid
requests does not cause a flood of reads. New clusters and policies are known after a minute at the
latest.

An unknown name gets empty keys: the same digests are computed with a random key. Status 404 says
that there is no such cluster.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.model.secret import SecretUnavailable, place_of
from chalicelib.policy.secret_names import WEBHOOK, ClusterSecrets
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import logger
from chalicelib.runtime.webhook_authentication import WebhookKeys, read_keys

if TYPE_CHECKING:
    from chalicelib.store.policies import StoredPolicy, StoredWebhook

KEPT_FOR = 60.0
APART = 30.0  # seconds between two reads of one cluster's secret after failed authentication
MAX_DOORS = 512
MAX_POLICIES = 128

T = TypeVar("T")


@dataclass(frozen=True)
class ClusterCredentials:
    """known: whether there is such a cluster. keys: the keys that authenticate its callers."""

    known: bool
    keys: WebhookKeys


@dataclass(frozen=True)
class _CachedValue(Generic[T]):
    """A value for a version of a policy, until an instant."""

    value: T
    version: int
    until: float


class _Cache(Generic[T]):
    """A bounded cache of values by cluster; the least recently used value is evicted first."""

    def __init__(self, most: int) -> None:
        self._values: OrderedDict[str, _CachedValue[T]] = OrderedDict()
        self._most = most

    def get(self, name: str, version: int, now: float, make: Callable[[], T]) -> T:
        """Return the cached value for this version, or otherwise what `make` returns."""
        cached = self._values.get(name)
        if cached is None or cached.version != version or _is_over(cached.until, now):
            return self.put(name, version, now, make())
        self._values.move_to_end(name)
        return cached.value

    def put(self, name: str, version: int, now: float, value: T) -> T:
        """Cache this value, and return it."""
        self._values[name] = _CachedValue(value, version, now + KEPT_FOR)
        self._values.move_to_end(name)
        while len(self._values) > self._most:
            self._values.popitem(last=False)
        return value


def _is_over(until: float, now: float) -> bool:
    """Return whether the instant has passed. A clock that was set back must not extend the time."""
    return not now < until <= now + KEPT_FOR


class WebhookCredentials:
    """The cache of this process. Threads wait for each other, so that many of them ask AWS once.

    webhooks: the webhook's part of every policy in force, by cluster. current: cluster ->
    its stored policy, None if
    there is none. load: text, name, version, compiled -> Policy. deployment: which
    secrets a cluster may name.
    """

    def __init__(
        self,
        *,
        webhooks: Callable[[], Mapping[str, StoredWebhook]],
        current: Callable[[str], StoredPolicy | None],
        load: Callable[[str, str, int, bytes | None], Policy],
        read_secret: Callable[[str], str],
        clock: Callable[[], float],
        deployment: Deployment = STRICT,
    ) -> None:
        self._webhooks, self._current, self._load = webhooks, current, load
        self._read_secret, self._clock, self._deployment = read_secret, clock, deployment
        self._lock = threading.RLock()
        self._known: Mapping[str, StoredWebhook] = {}
        self._known_until = 0.0
        self._read_again: dict[str, float] = {}
        self._keys: _Cache[WebhookKeys] = _Cache(MAX_DOORS)
        self._policies: _Cache[Policy | None] = _Cache(MAX_POLICIES)
        self.decoy = secrets.token_bytes(32)

    def for_cluster(self, name: str) -> ClusterCredentials:
        """Return the credentials for this name; raises StoreError if the table cannot
        be read, and nothing else."""
        with self._lock:
            webhook = self._webhook(name)
            if webhook is None:
                return ClusterCredentials(known=False, keys=WebhookKeys())
            keys = self._keys.get(
                name, webhook.version, self._clock(), lambda: self._read_keys(name, webhook)
            )
            return ClusterCredentials(known=True, keys=keys)

    def again(self, name: str) -> ClusterCredentials | None:
        """Return the credentials with the secret read anew, for a request whose authentication
        failed; None where it was read anew recently, or is unchanged. Raises StoreError."""
        with self._lock:
            webhook, now = self._webhook(name), self._clock()
            if webhook is None or not self._may_read_again(name, now):
                return None
            before = self.for_cluster(name).keys
            try:
                keys = self._read_keys(name, webhook, fresh=True)
            except SecretUnavailable:
                return None  # the cached keys stay
            self._keys.put(name, webhook.version, now, keys)
            return ClusterCredentials(known=True, keys=keys) if keys != before else None

    def _may_read_again(self, name: str, now: float) -> bool:
        """Return whether the last read was long enough ago, and record this one. Only for
        names of known clusters."""
        last = self._read_again.get(name)
        if last is not None and 0 <= now - last < APART:
            return False
        if len(self._read_again) >= MAX_DOORS:
            self._read_again.clear()
        self._read_again[name] = now
        return True

    def policy(self, name: str) -> Policy | None:
        """Return the cluster's policy without its schedules, at most a minute old; None where there
        is none, or none that can be read. For authenticated callers. Raises StoreError."""
        with self._lock:
            webhook = self._webhook(name)
            if webhook is None:
                return None
            return self._policies.get(
                name, webhook.version, self._clock(), lambda: self._read_policy(name)
            )

    def _webhook(self, name: str) -> StoredWebhook | None:
        now = self._clock()
        if _is_over(self._known_until, now):
            self._known, self._known_until = self._webhooks(), now + KEPT_FOR
        return self._known.get(name)

    def _read_keys(self, name: str, webhook: StoredWebhook, *, fresh: bool = False) -> WebhookKeys:
        secret = webhook.secret
        if secret is None:
            policy = self.policy(name)
            secret = policy.webhook.secret if policy else ""
        if not secret:
            return WebhookKeys()
        try:
            read = ClusterSecrets(self._read_secret, name, (WEBHOOK,), self._deployment)
            return read_keys(read.fresh(secret) if fresh else read(secret), place_of(secret))
        except OutscalerError as error:
            if fresh and isinstance(error, SecretUnavailable):
                raise
            logger.error(
                "webhook secret cannot be used", cluster=name, secret_name=secret, detail=str(error)
            )
            return WebhookKeys()

    def _read_policy(self, name: str) -> Policy | None:
        stored = self._current(name)
        if stored is None:
            return None
        try:
            return self._load(stored.text, name, stored.version, stored.compiled)
        except OutscalerError as error:
            logger.error("stored policy cannot be used", cluster=name, detail=str(error))
            return None
