"""A node may stay in installation for fifteen minutes; meanwhile no second one is
bought for the same pods.
"""

from __future__ import annotations

from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.models import CceDurations
from infra.emulators.local_world import LocalWorld
from tests.providers.huaweicloud.test_cce_end_to_end import CceWorldFixture


def test_CCE_A9_3_pool_with_endless_installation_yields_after_fifteen_minutes() -> None:
    account = HuaweiAccount(times=CceDurations(install=1e6))
    with LocalWorld(quick=True, clouds=(account,), forgetful=True) as world:
        bed = CceWorldFixture(world, account)
        bed.demand(2)  # one pod fits on the existing node
        begun = world.clock()
        world.step(880.0)
        assert (bed.tried(), bed.sizes()) == (["web/az2"], [(0, 0), (1, 1), (1, 1)]), (
            "not before its time"
        )
        world.step_until(lambda: len(bed.tried()) > 1, limit=300.0)
        assert world.clock() - begun < 1020.0
        assert sum(size for size, _ in bed.sizes()[:2]) <= 2, "what hangs is given back"
        asked = [call for call in account.server.log if call.operation == "scale-pool"]
        assert len(asked) == 2, "each pool or flavour once"
