"""A quiet tick costs one call and no additional items with twenty pools of Cherry Servers
next to another provider.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.services import ProviderServices
from infra.emulators.cherryservers.attached_account import CherryAccount, CherryRegistrationOptions
from infra.emulators.cloud_account import LOOPBACK
from tests.functional.operations.harness import OperationHarness
from tests.functional.operations.test_reconcile_idle_cost import Costs, a_large_cluster, a_tick

POOLS, SIZE = 20, 3


@pytest.fixture
def account(stage: OperationHarness) -> Iterator[CherryAccount]:
    """Twenty pools of three servers each, in a project in addition to the harness's own group."""
    made = CherryAccount(ways=CherryRegistrationOptions(boot=0.0))
    joining = made.attach(stage.clock, stage.kube)
    names = [f"pool{number}" for number in range(POOLS)]
    for name in names * SIZE:
        made.cloud.add_server(name)
    made.start()
    joining.step()
    bounds = tuple(GroupPolicy("cherryservers", name, 0, 10) for name in names)

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
            lambda name: made.secrets()[name],
            None,
            stage.clock,
            means=means,
        )
        return [stage.provider, registry.build("cherryservers", connection)]

    stage.providers = providers
    yield made
    made.stop()


def test_quiet_tick_with_twenty_pools_makes_one_call_and_writes_five_items_at_most(
    stage: OperationHarness, account: CherryAccount
) -> None:
    a_large_cluster(stage)
    a_tick(stage)
    for _ in range(3):
        before = len(account.server.log)
        with Costs(stage) as costs:
            a_tick(stage)
        assert costs.items <= 5
        assert costs.reads <= 27, "the shared_cache's two rows beside what a tick reads anyway"
        assert [call.action for call in account.server.log[before:]] == ["list_servers"]
