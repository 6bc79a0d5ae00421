"""Detection of the vendor's own autoscaler running next to ours."""

from __future__ import annotations

from typing import Any

from chalicelib.model.snapshot import MissingData
from chalicelib.providers.errors import ProviderError, Transient, Unauthorized
from chalicelib.providers.huaweicloud.models import Addon
from chalicelib.providers.huaweicloud.node_groups import SWITCHES, Switches, find_rival
from chalicelib.providers.services import TtlCache
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import FakeCceApi, seen, two, warnings

OFF: dict[str, Any] = dict.fromkeys(SWITCHES, False)


def rival(*addons: Addon) -> MissingData | None:
    api = FakeCceApi()
    api.installed = addons
    return find_rival(api, None)


@each_row("custom", [{**OFF, name: on} for name in SWITCHES for on in (True, "true", " True ")])
def test_CCE_A7_active_second_autoscaler_is_reported(custom: dict[str, Any]) -> None:
    found = rival(Addon("coredns"), Addon("autoscaler", "running", custom))
    assert found is not None
    assert (found.kind, found.name, found.affected_decisions) == (
        "provider/huaweicloud",
        "add-on autoscaler",
        ("two autoscalers fight",),
    )


@each_row(
    "addon",
    [
        Addon("autoscaler", "running", OFF),
        Addon("coredns", "running", {}),
        Addon("autoscaler", "running", {**OFF, "scaleDownEnabled": "no"}),
        Addon("autoscaler", "uninstalled", {}),
    ],
)
def test_CCE_A7_disabled_second_autoscaler_is_not_reported(addon: Addon) -> None:
    assert rival(addon) is None
    assert rival() is None


def test_CCE_A1_1_unset_addon_switch_has_the_vendors_default() -> None:
    found = rival(Addon("autoscaler", "running", {}))
    assert found is not None
    assert all(name in found.detail for name in SWITCHES[:2])
    assert SWITCHES[2] not in found.detail


class _MemoryCache:
    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: str, value: bytes, seconds: float) -> None:
        del seconds
        self.rows[key] = value


@each_row("trouble", [[], [Unauthorized("403")]])
def test_CCE_A7_addons_are_read_once_an_hour_even_if_forbidden(trouble: list[ProviderError]) -> None:
    api, cache, clock = FakeCceApi(), _MemoryCache(), [1000.0]
    api.trouble["addons"] = list(trouble)
    api.installed = (Addon("autoscaler", "running", {}),)
    for now in (1000.0, 1010.0, 4599.0, 4601.0, 900.0):
        clock[0] = now
        kept = TtlCache(cache, lambda: "row", Switches, lambda: clock[0])
        found = find_rival(api, kept)
        assert (found is None) == (bool(trouble) and now in {1000.0, 1010.0, 4599.0})
    assert len(api.calls) == 3  # a clock that went back must not keep an entry alive forever


def test_huawei_addon_errors_fail_no_pass() -> None:
    api = FakeCceApi(two())
    api.installed = (Addon("autoscaler", "running", {}),)
    assert "two autoscalers" in warnings(api)
    assert warnings(api, warnAboutAddon="false") == ""
    api.trouble["addons"] = [Transient("502"), Unauthorized("no")]
    assert len(seen(api)) == 2
    assert warnings(api) == ""
