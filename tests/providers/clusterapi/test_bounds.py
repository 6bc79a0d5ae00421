"""Bounds and options of Cluster API groups."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.clusterapi.models import CapiAnnotations
from chalicelib.providers.clusterapi.node_groups import CapiBounds, read_bounds, read_options
from tests.cases import each_row
from tests.providers.clusterapi.objects import bounds

OPTION = "cluster.x-k8s.io/autoscaling-options-"


@each_row(
    ("low", "high", "expected"),
    [
        (None, None, None),
        (None, "0", None),
        (None, "5", CapiBounds(0, 5)),  # upstream's README asks for both, its code does not
        ("0", None, None),
        ("0", "0", None),
        ("1", None, "error"),
        ("5", "4", "error"),
        ("-1", "3", "error"),
        ("-1", None, "error"),
        (None, "-1", "error"),
        ("0", "-1", "error"),
        ("1.5", "3", "error"),
        (" 3", "5", "error"),
        ("3", "5 ", "error"),
        ("1_0", "50", "error"),
        ("\u0663", "50", "error"),  # a Unicode digit that is not accepted
        ("", "5", "error"),
        ("one", "5", "error"),
        ("0", "9" * 5000, "error"),  # more digits than Python itself converts
        ("+1", "+3", CapiBounds(1, 3)),
        ("3", "5", CapiBounds(3, 5)),
        ("4", "4", CapiBounds(4, 4)),  # a group of fixed size
    ],
)
def test_capi_bounds_table(
    low: str | None, high: str | None, expected: CapiBounds | str | None
) -> None:
    annotations = bounds(low, high)
    if expected == "error":
        with pytest.raises(BadInput) as raised:
            read_bounds(annotations, CapiAnnotations(), None, "MachineDeployment/ns/name")
        assert raised.value.place == "MachineDeployment/ns/name"
        assert raised.value.remedy
    else:
        assert read_bounds(annotations, CapiAnnotations(), None, "place") == expected


@each_row(
    ("annotations", "low", "high", "expected"),
    [
        (bounds("1", "3"), None, 8, CapiBounds(1, 8)),
        (bounds("1", "3"), 2, None, CapiBounds(2, 3)),
        # the policy's value makes reading it unnecessary
        (bounds("x", "y"), 0, 4, CapiBounds(0, 4)),
        ({}, 1, 4, CapiBounds(1, 4)),
        ({}, None, None, None),
        ({}, 0, 0, None),
    ],
)
def test_capi_policy_bounds_override_the_annotations(
    annotations: dict[str, str], low: int | None, high: int | None, expected: CapiBounds | None
) -> None:
    entry = GroupPolicy("clusterapi", "ns/name", min=low, max=high)
    assert read_bounds(annotations, CapiAnnotations(), entry, "place") == expected


def test_capi_policy_minimum_above_the_annotated_maximum_is_refused() -> None:
    with pytest.raises(BadInput, match="maximum 3 is below the minimum 5"):
        read_bounds(
            bounds("1", "3"), CapiAnnotations(), GroupPolicy("clusterapi", "x", min=5), "place"
        )


def test_capi_options_of_all_kinds() -> None:
    annotations = {
        OPTION + "scaledownutilizationthreshold": "0.4",
        OPTION + "scaledowngpuutilizationthreshold": "5E-1",
        OPTION + "scaledownunneededtime": "1H",
        OPTION + "scaledownunreadytime": "20m0s",
        OPTION + "maxnodeprovisiontime": "0",
        OPTION + "maxnodestartuptime": "1h30m",
        OPTION + "ignoredaemonsetsutilization": "True",
    }
    assert read_options(annotations, CapiAnnotations()) == (
        GroupOptions(
            scale_down_utilization_threshold=0.4,
            scale_down_gpu_utilization_threshold=0.5,
            scale_down_unneeded_time=3600.0,
            scale_down_unready_time=1200.0,
            max_node_provision_time=0.0,
            max_node_startup_time=5400.0,
            ignore_daemonsets_utilization=True,
        ),
        (),
    )


@each_row(
    ("name", "text"),
    [
        ("scaledownunneededtime", "foo"),
        ("scaledownunneededtime", "10"),
        ("scaledownunneededtime", "-5m"),
        ("scaledownutilizationthreshold", "nan"),
        ("scaledownutilizationthreshold", "inf"),
        ("scaledownutilizationthreshold", "1e999"),
        ("scaledownutilizationthreshold", "0_5"),
        ("ignoredaemonsetsutilization", "yes"),
    ],
)
def test_capi_unreadable_option_keeps_the_default_and_is_reported(name: str, text: str) -> None:
    options, warnings = read_options({OPTION + name: text}, CapiAnnotations())
    assert options == GroupOptions()
    assert len(warnings) == 1
    assert name in warnings[0]
    assert text.lower() in warnings[0]


def test_capi_option_names_are_exact_and_empty_ones_ignored() -> None:
    annotations = {
        OPTION + "ScaleDownUnneededTime": "5m",
        OPTION: "5m",
        OPTION + "scaledownunreadytime": "",
    }
    assert read_options(annotations, CapiAnnotations()) == (GroupOptions(), ())
