"""The entry point to the tables for handlers, executors and the command line."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from chalicelib import __version__
from chalicelib.store.debounce import Debounce
from chalicelib.store.group_ownership import GroupOwnership
from chalicelib.store.journal import KEPT, GaugeRings, Journal, NoticeRows, ShadowRows
from chalicelib.store.leases import Leases, ScanStates
from chalicelib.store.memory import BreakerOverrides, MemoryStore, PoolRequests, Retries
from chalicelib.store.operations import Operations
from chalicelib.store.policies import DeploymentSettings, Pauses, Policies, PolicyMigration
from chalicelib.store.schema_version import Schemas
from chalicelib.store.staged_saves import Staging
from chalicelib.store.table_client import Table
from chalicelib.store.tables import DRAINS, PRUNES, policy_table_of
from chalicelib.store.vendor_calls import RateLimits, SharedCache


class Store:
    """All persistent state, in two DynamoDB tables.

    table_name: the state table. policy_table: the table for policies; policy_table_of(table_name)
    unless given. clock: epoch seconds. region, endpoint: botocore's defaults (AWS_DEFAULT_REGION,
    AWS_ENDPOINT_URL) unless given. sleep, chance: how retries wait, and their jitter. client: a
    botocore client to be used instead of a new one. wrap: wraps that client, for injecting faults.
    journal_kept: seconds.

    Methods raise StoreError (errors.py); storing a policy may also raise BadInput.
    rate_limits and cache never raise.
    """

    def __init__(
        self,
        table_name: str,
        *,
        clock: Callable[[], float],
        policy_table: str = "",
        region: str | None = None,
        endpoint: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        client: Any = None,
        wrap: Callable[[Any], Any] = lambda client: client,
        journal_kept: float = KEPT,
        table: type[Table] = Table,
    ) -> None:
        connect = partial(
            table, region=region, endpoint=endpoint, sleep=sleep, chance=chance, wrap=wrap
        )
        self.table = connect(table_name, client=client)
        self.policy_table = connect(
            policy_table or policy_table_of(table_name), client=self.table.client
        )
        staging = Staging(self.table)
        self.leases = Leases(self.table, clock)
        self.memory = MemoryStore(self.table, staging, clock)
        self.operations = Operations(self.table, staging, clock)
        self.journal = Journal(self.table, clock, journal_kept)
        self.policies = Policies(self.policy_table, clock)
        self.pauses = Pauses(self.policy_table, clock)
        self.moving = PolicyMigration(self.table, self.policy_table)
        self.breaker_overrides = BreakerOverrides(self.table)
        self.prunes = PoolRequests(self.table, PRUNES)
        self.drains = PoolRequests(self.table, DRAINS)
        self.group_ownership = GroupOwnership(
            self.table, clock, staging, lambda name: self.policies.current(name) is not None
        )
        self.gauge_rings = GaugeRings(self.table)
        self._staging = staging
        self.scan_states = ScanStates(self.table, clock)
        self.schema = Schemas(self.table, clock, __version__)
        self.debounce = Debounce(self.table, clock)
        self.rate_limits = RateLimits(self.table, clock)
        self.cache = SharedCache(self.table, clock)
        self._clock = clock

    def deployment_settings(self) -> DeploymentSettings:
        """Return the access to what the deployment has published about itself."""
        return DeploymentSettings(self.policy_table, self._clock, __version__)

    def notices(self) -> NoticeRows:
        """Return the access to the state of notifications."""
        return NoticeRows(self.table)

    def retries(self) -> Retries:
        """Return the access to waits that an operator ends."""
        return Retries(self.table, self._staging, self._clock)

    def shadow(self) -> ShadowRows:
        """Return the access to comparisons with another autoscaler."""
        return ShadowRows(self.table, self._clock)
