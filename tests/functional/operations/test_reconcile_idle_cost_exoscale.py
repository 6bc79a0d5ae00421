"""A quiet tick costs a handful of calls and no additional items with Exoscale Nodepools
next to another provider.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.services import ProviderServices
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.exoscale.attached_account import ExoscaleAccount, ExoscaleRegistrationOptions
from tests.functional.operations.harness import OperationHarness
from tests.functional.operations.test_reconcile_idle_cost import Costs, a_large_cluster, a_tick

GROUPS, SIZE = 16, 3


@pytest.fixture
def account(stage: OperationHarness) -> Iterator[ExoscaleAccount]:
    """Sixteen Nodepools of three nodes each, in a zone in addition to the harness's own
    group; one has no maximum."""
    made = ExoscaleAccount(ways=ExoscaleRegistrationOptions(boot=0.0))
    joining = made.attach(stage.clock, stage.kube)
    cluster = made.zone.add_cluster("prod")
    pools = [
        made.zone.add_nodepool(cluster.id, f"g{number}", size=SIZE).pool for number in range(GROUPS)
    ]
    made.start()
    joining.step()
    bounds = tuple(GroupPolicy("exoscale", pool.id, 0, 10) for pool in pools[1:])

    def providers() -> list[Provider]:
        """Providers as each pass builds them, with the state that functions share in the table."""
        means = ProviderServices(
            deployment=LOOPBACK,
            sleep=stage.clock.advance,
            chance=lambda: 0.5,
            rate_limiter=stage.store.rate_limits,
            cache=stage.store.cache,
        )
        connection = Connection(
            stage.name,
            made.settings(),
            bounds,
            lambda _: made.secret(),
            None,
            stage.clock,
            means=means,
        )
        return [stage.provider, registry.build("exoscale", connection)]

    stage.providers = providers
    yield made
    made.stop()


def test_quiet_tick_with_16_nodepools_makes_4_calls_and_writes_5_items_at_most(
    stage: OperationHarness, account: ExoscaleAccount
) -> None:
    a_large_cluster(stage)
    a_tick(stage)
    for _ in range(3):
        before = len(account.server.log)
        with Costs(stage) as costs:
            a_tick(stage)
        assert costs.items <= 5
        assert costs.reads <= 27, "cache rows in addition to the reads of every tick"
        calls = {call.operation for call in account.server.log[before:]}
        assert len(account.server.log) - before <= 4
        assert (
            {"list-instance-pools", "list-instances", "list-sks-clusters"}
            <= calls
            <= {"list-instance-pools", "list-instances", "list-sks-clusters", "get-quota"}
        )
