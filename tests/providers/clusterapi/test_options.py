"""Group options, including those that upstream lacks, and invalid values."""

from __future__ import annotations

from chalicelib.model.group import GroupOptions
from chalicelib.providers.clusterapi.models import CapiAnnotations
from chalicelib.providers.clusterapi.node_groups import read_options
from tests.cases import each_row

PREFIX = "cluster.x-k8s.io/autoscaling-options-"


def read(**options: str) -> tuple[GroupOptions, tuple[str, ...]]:
    return read_options({PREFIX + name: text for name, text in options.items()}, CapiAnnotations())


@each_row(("text", "value"), [("true", True), ("True", True), ("FALSE", False)])
def test_capi_options_that_upstream_lacks(text: str, value: bool) -> None:
    assert read(ignoredaemonsetsutilization=text) == (
        GroupOptions(ignore_daemonsets_utilization=value),
        (),
    )
    assert read(zeroormaxnodescaling=text) == (GroupOptions(zero_or_max=value), ())


@each_row("text", ["1", "yes", "maybe", "true "])
def test_capi_boolean_option_is_true_or_false(text: str) -> None:
    options, warnings = read(zeroormaxnodescaling=text, ignoredaemonsetsutilization=text)
    assert options == GroupOptions()
    assert len(warnings) == 2
    assert all("true or false" in warning for warning in warnings)


@each_row(
    "name",
    ["scaledownunneededtime", "scaledownunreadytime", "maxnodeprovisiontime", "maxnodestartuptime"],
)
@each_row("text", ["-5m", "nan", "inf", "10", "5 m", "1h-5m", "9" * 400 + "h"])
def test_capi_time_option_is_finite_and_not_negative(name: str, text: str) -> None:
    options, warnings = read(**{name: text})
    assert options == GroupOptions()
    assert len(warnings) == 1
    assert PREFIX + name in warnings[0]


@each_row("text", ["nan", "inf", "-inf", "1e999", "0x1p-2", "half", "0,5"])
def test_capi_threshold_option_is_a_finite_number(text: str) -> None:
    options, warnings = read(
        scaledownutilizationthreshold=text, scaledowngpuutilizationthreshold=text
    )
    assert options == GroupOptions()
    assert len(warnings) == 2


def test_capi_unreadable_option_affects_no_other_option() -> None:
    options, warnings = read(
        scaledownunneededtime="1H", maxnodeprovisiontime="soon", foo="1", maxnodestartuptime=""
    )
    assert options == GroupOptions(scale_down_unneeded_time=3600.0)
    assert len(warnings) == 1
