"""The doctor sends CCE no request that could change a pool: a mistaken
scale request can empty one.
"""

from __future__ import annotations

from chalicelib.cli.doctor.finding import DoctorContext
from chalicelib.cli.doctor.registry import CHECKS, examine
from chalicelib.cluster.node_groups import read_node_groups
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.providers.huaweicloud.fixture import HuaweiBench

NOW = 1_800_000_000.0


def test_DOC_25_doctor_sends_no_scale_request_even_with_probes(bench: HuaweiBench) -> None:
    bench.add_group("g", size=2)
    provider = bench.provider()
    observed = read_node_groups([provider], ())
    groups, gaps = observed.groups, observed.gaps
    assert groups
    context = DoctorContext(
        policy=Policy(name="prod", mode=Mode.ACTIVE, providers={"huaweicloud": {}}),
        clock=lambda: NOW,
        read_secret=lambda name: name,
        snapshot=Snapshot("prod", NOW, groups=groups, gaps=gaps),
        providers=(("huaweicloud", provider),),
        probe=True,
    )
    vendor_subjects = {"vendor", "bounds", "quota"}
    found = examine(context, sorted(vendor_subjects))
    assert vendor_subjects < {check.subject for check in CHECKS}
    assert any("cannot be asked for without a change" in each.message for each in found)
    assert {call.method for call in bench.server.log} <= {"GET"}
