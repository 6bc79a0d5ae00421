"""Detection of the vendor's own autoscaler running next to ours."""

from __future__ import annotations

from typing import Any

from chalicelib.model.snapshot import MissingData
from chalicelib.providers.huaweicloud.node_groups import SWITCHES, Switches, find_rival
from chalicelib.providers.kit.services import TtlCache
from tests.cases import each_row
from tests.providers.emulated import KeptCache
from tests.providers.huaweicloud.emulated import CLUSTER, EmulatedCce, refusal

OFF: dict[str, Any] = dict.fromkeys(SWITCHES, False)


def rival(
    template: str = "autoscaler", status: str = "running", **custom: Any
) -> MissingData | None:
    """Returns what is found beside another add-on."""
    cce = EmulatedCce()
    cce.cloud.add_addon(CLUSTER, "coredns")
    cce.cloud.add_addon(CLUSTER, template, status=status, **custom)
    return find_rival(cce.api(), None)


@each_row("custom", [{**OFF, name: on} for name in SWITCHES for on in (True, "true", " True ")])
def test_CCE_A7_active_second_autoscaler_is_reported(custom: dict[str, Any]) -> None:
    found = rival(**custom)
    assert found is not None
    assert (found.kind, found.name, found.affected_decisions) == (
        "provider/huaweicloud",
        "add-on autoscaler",
        ("two autoscalers fight",),
    )


@each_row(
    "addon",
    [OFF, {"template": "metrics"}, {**OFF, "scaleDownEnabled": "no"}, {"status": "uninstalled"}],
)
def test_CCE_A7_disabled_second_autoscaler_is_not_reported(addon: dict[str, Any]) -> None:
    assert rival(**addon) is None
    assert find_rival(EmulatedCce().api(), None) is None


@each_row("custom", [{}, dict.fromkeys(SWITCHES)])
def test_CCE_A1_1_unset_addon_switch_has_the_vendors_default(custom: dict[str, Any]) -> None:
    found = rival(**custom)
    assert found is not None
    assert all(name in found.detail for name in list(SWITCHES)[:2])
    assert list(SWITCHES)[2] not in found.detail


@each_row("forbidden", [False, True])
def test_CCE_A7_addons_are_read_once_an_hour_even_if_forbidden(forbidden: bool) -> None:
    cce, rows, clock = EmulatedCce(), KeptCache(), [1000.0]
    cce.cloud.add_addon(CLUSTER)
    if forbidden:
        cce.fail("addons", 403, "CCE.01403001", times=1)
    for now in (1000.0, 1010.0, 4599.0, 4601.0, 900.0):
        clock[0] = now
        cache = TtlCache(rows, lambda: "row", Switches, lambda: clock[0])
        found = find_rival(cce.api(), cache)
        assert (found is None) == (forbidden and now in {1000.0, 1010.0, 4599.0})
    # a clock that went back must not keep an entry alive forever
    assert len(cce.server.requests) == 3


def test_huawei_addon_errors_fail_no_pass() -> None:
    cce = EmulatedCce(3, 2)
    cce.cloud.add_addon(CLUSTER)
    assert "two autoscalers" in cce.warnings()
    assert cce.warnings(warnAboutAddon="false") == ""
    cce.server.reply("addons", *[refusal(502)] * 3, refusal(403, "CCE.01403001"))
    assert len(cce.groups()) == 2
    assert cce.warnings() == ""
