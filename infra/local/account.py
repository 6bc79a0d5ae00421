"""One world's part of the emulated AWS: a table and secrets of its own, and runtimes that use them.

Many worlds may share one emulated account, also two of the same name that are to be compared, so the table has a name
that nobody else has and the secrets' names begin with it. Neither is seen by what is decided.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import Any

from chalicelib.dispatch.send import Sender
from chalicelib.handlers.runtime import Runtime, Secrets, build
from chalicelib.kube.client import Cluster
from chalicelib.kube.connect import connect
from chalicelib.kube.secrets import SecretReader
from chalicelib.model.policy import Policy
from chalicelib.store import Store
from infra.local.aws import REGION, LocalAws
from infra.local.aws_direct import DirectWay
from infra.local.controllers.clock import ManualClock
from infra.local.mortality import Life, Mortal


class Account:
    """aws must be running. Waiting anywhere in here lets the clock pass instead."""

    def __init__(self, aws: LocalAws, clock: ManualClock) -> None:
        way = DirectWay()
        self._aws, self._clock, self._table = aws, clock, f"world-{uuid.uuid4().hex[:12]}"
        self._dynamodb = way.take(aws.client("dynamodb"))
        self._secrets = way.take(aws.client("secretsmanager"))

    def create(self) -> None:
        """Make the table."""
        self._aws.create_table(self._table)

    def drop(self) -> None:
        """Forget the table: moto copies all there are for every transaction."""
        self._dynamodb.delete_table(TableName=self._table)

    def put_secret(self, name: str, text: str) -> None:
        """A secret that only this account sees."""
        self._aws.put_secret(f"{self._table}/{name}", text)

    def store(self) -> Store:
        """The table, for an observer, who does not die with a function."""
        return self._store(self._dynamodb)

    def runtime(self, sender: Sender, life: Life, owner: Callable[[], str], emit: Callable[[str], None]) -> Runtime:
        """As a new process builds it; what it reaches the world through ends with its life."""
        secrets = Secrets(SecretReader(_Prefixed(Mortal(self._secrets, life), self._table)), self._clock)

        def connected(policy: Policy) -> Cluster:
            life.check()
            return connect(policy.kubernetes, secrets, clock=self._clock, sleep=self._clock.advance,
                           jitter=lambda: 0.5)

        made = build(clock=self._clock, store=self._store(Mortal(self._dynamodb, life)), sender=Mortal(sender, life),
                     read_secret=secrets, connect=connected, owner=owner)
        return dataclasses.replace(made, checkpoint=life.checkpoint, emit=emit)

    def _store(self, client: Any) -> Store:
        return Store(self._table, clock=self._clock, client=client, region=REGION, endpoint=self._aws.endpoint or None,
                     sleep=self._clock.advance, chance=lambda: 0.5)


class _Prefixed:
    """Secrets Manager as one account sees it: names begin with its own."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def get_secret_value(self, SecretId: str) -> Any:  # noqa: N803 - the API's word
        """The secret of that name."""
        return self._client.get_secret_value(SecretId=f"{self._prefix}/{SecretId}")
