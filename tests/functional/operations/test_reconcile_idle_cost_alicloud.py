"""A quiet tick costs no additional items with a second provider whose calls are limited
by a budget in the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.services import ProviderServices
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.node_registration import AlicloudRegistrationOptions
from infra.emulators.cloud_account import LOOPBACK
from tests.functional.operations.harness import OperationHarness
from tests.functional.operations.test_reconcile_idle_cost import Costs, a_large_cluster, a_tick

GROUPS, SIZE = 20, 3


@pytest.fixture
def account(stage: OperationHarness) -> Iterator[AlicloudAccount]:
    """Twenty scaling groups of three nodes each, in an account in addition to
    the harness's own group."""
    made = AlicloudAccount(ways=AlicloudRegistrationOptions(boot=0.0))
    joining = made.attach(stage.clock, stage.kube)
    groups = [made.cloud.add_group(f"g{number}", size=SIZE) for number in range(GROUPS)]
    made.start()
    joining.step()
    bounds = tuple(GroupPolicy("alicloud", group.id, 0, 10) for group in groups)

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
        return [stage.provider, registry.build("alicloud", connection)]

    stage.providers = providers
    yield made
    made.stop()


def test_quiet_tick_with_twenty_scaling_groups_writes_five_items_at_most(
    stage: OperationHarness, account: AlicloudAccount
) -> None:
    a_large_cluster(stage)
    a_tick(stage)
    for _ in range(3):
        before = len(account.server.log)
        with Costs(stage) as costs:
            a_tick(stage)
        assert costs.items <= 5
        assert costs.reads <= 27, "two cache rows in addition to the reads of every tick"
        calls = [call.action for call in account.server.log[before:]]
        assert sorted(calls) == ["DescribeScalingGroups"] + ["DescribeScalingInstances"] * GROUPS
