"""The vendor's own scaler beside ours (huaweicloud-cce.md A1.1, A7)."""

from __future__ import annotations

from typing import Any

from chalicelib.model.snapshot import MissingData
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import ProviderError, Transient, Unauthorized
from chalicelib.providers.huaweicloud.autoscaler_addon import SWITCHES, Switches, find_rival
from chalicelib.providers.huaweicloud.models import Addon
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import FakeApi, seen, two, warnings

OFF: dict[str, Any] = dict.fromkeys(SWITCHES, False)


def rival(*addons: Addon) -> MissingData | None:
    api = FakeApi()
    api.installed = addons
    return find_rival(api, None)


@each_row("custom", [{**OFF, name: on} for name in SWITCHES for on in (True, "true", " True ")])
def test_CCE_A7_a_second_autoscaler_that_is_at_work_is_told(custom: dict[str, Any]) -> None:
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
def test_CCE_A7_one_that_is_off_is_not(addon: Addon) -> None:
    assert rival(addon) is None
    assert rival() is None


def test_CCE_A1_1_a_switch_that_is_not_written_is_as_the_vendor_has_it() -> None:
    found = rival(Addon("autoscaler", "running", {}))
    assert found is not None
    assert all(name in found.detail for name in SWITCHES[:2])
    assert SWITCHES[2] not in found.detail


class _Shelf:
    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: str, value: bytes, seconds: float) -> None:
        del seconds
        self.rows[key] = value


@each_row("trouble", [[], [Unauthorized("403")]])
def test_CCE_A7_it_is_asked_for_once_an_hour_also_where_the_key_may_not(trouble: list[ProviderError]) -> None:
    api, shelf, clock = FakeApi(), _Shelf(), [1000.0]
    api.trouble["addons"] = list(trouble)
    api.installed = (Addon("autoscaler", "running", {}),)
    for now in (1000.0, 1010.0, 4599.0, 4601.0, 900.0):
        clock[0] = now
        kept = TtlCache(shelf, lambda: "row", Switches, lambda: clock[0])
        found = find_rival(api, kept)
        assert (found is None) == (bool(trouble) and now in {1000.0, 1010.0, 4599.0})
    assert len(api.calls) == 3  # a clock that went back makes nothing live for ever


def test_no_pass_depends_on_it() -> None:
    api = FakeApi(two())
    api.installed = (Addon("autoscaler", "running", {}),)
    assert "two autoscalers" in warnings(api)
    assert warnings(api, warnAboutAddon="false") == ""
    api.trouble["addons"] = [Transient("502"), Unauthorized("no")]
    assert len(seen(api)) == 2
    assert warnings(api) == ""
