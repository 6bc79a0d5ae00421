"""Conversion of the CCE add-on's settings, key by key, and the report of those
that cannot be converted.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.cli.migrate.cce_policy import KEYS, AddonSettings, read_addon
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.cases import each_row

GI = 2**30
# An add-on without settings: its defaults where they differ from ours.
DEFAULTS: dict[str, Any] = {
    "max_nodes_total": 1000,
    "cores_total": (0, 32000),
    "memory_total": (0, 128000 * GI),
    "scale_down_enabled": False,
    "scale_down_delay_after_delete": 600.0,
    "expander": ("priority", "least-waste", "random"),
}


def read(**custom: Any) -> AddonSettings:
    return read_addon(custom, "addon.json")


def changed(options: msgspec.Struct) -> dict[str, Any]:
    """Returns the options that differ from the defaults."""
    defaults = msgspec.structs.asdict(type(options)())
    return {
        name: value
        for name, value in msgspec.structs.asdict(options).items()
        if value != defaults[name]
    }


def test_CCE_A7_addon_defaults_that_differ_from_ours_are_written_out() -> None:
    found = read()
    assert changed(found.options) == DEFAULTS
    assert (found.scale_up, found.scan_interval, found.warnings) == (ScaleUp(), 60.0, ())


@each_row(
    ("key", "value", "option", "becomes"),
    [
        ("maxNodesTotal", 200, "max_nodes_total", 200),
        ("maxNodesTotal", "200", "max_nodes_total", 200),
        ("maxNodesTotal", 0, "max_nodes_total", 0),
        ("maxNodesTotal", -1, "max_nodes_total", 0),
        ("coresTotal", 64, "cores_total", (0, 64)),
        ("coresTotal", 0, "cores_total", Options().cores_total),
        ("memoryTotal", 512, "memory_total", (0, 512 * GI)),
        ("memoryTotal", -1, "memory_total", Options().memory_total),
        ("scaleDownEnabled", True, "scale_down_enabled", True),
        ("scaleDownEnabled", "true", "scale_down_enabled", True),
        ("scaleDownUtilizationThreshold", 0.35, "scale_down_utilization_threshold", 0.35),
        ("scaleDownUtilizationThreshold", "0.35", "scale_down_utilization_threshold", 0.35),
        ("scaleDownUnneededTime", 15, "scale_down_unneeded_time", 900.0),
        ("scaleDownUnneededTime", "15", "scale_down_unneeded_time", 900.0),
        ("scaleDownUnneededTime", "15m", "scale_down_unneeded_time", 900.0),
        ("scaleDownUnreadyTime", 30, "scale_down_unready_time", 1800.0),
        ("unremovableNodeRecheckTimeout", 7, "unremovable_node_recheck_timeout", 420.0),
        ("scaleDownDelayAfterAdd", 0, "scale_down_delay_after_add", 0.0),
        ("scaleDownDelayAfterDelete", 0, "scale_down_delay_after_delete", 0.0),
        ("scaleDownDelayAfterFailure", 5, "scale_down_delay_after_failure", 300.0),
        ("ignoreDaemonSetsUtilization", True, "ignore_daemonsets_utilization", True),
        (
            "skipNodesWithCustomControllerPods",
            False,
            "skip_nodes_with_custom_controller_pods",
            False,
        ),
        ("maxNodeProvisionTime", 20, "max_node_provision_time", 1200.0),
        ("maxGracefulTerminationFlag", 120, "max_graceful_termination_sec", 120),
        ("initialNodeGroupBackoffDuration", "2m", "initial_node_group_backoff_duration", 120.0),
        ("maxNodeGroupBackoffDuration", "1h", "max_node_group_backoff_duration", 3600.0),
        ("maxNodeGroupBinPackingDuration", "5s", "max_nodegroup_binpacking_duration", 5.0),
        ("maxEmptyBulkDeleteFlag", 4, "max_scale_down_parallelism", 4),
        ("maxScaleDownParallelism", 6, "max_scale_down_parallelism", 6),
        ("expander", "random", "expander", ("random",)),
        ("expander", "most-pods", "expander", ("most-pods",)),
        ("expander", "least-waste", "expander", ("least-waste",)),
        ("expander", "priority", "expander", ("priority", "least-waste", "random")),
    ],
)
def test_CCE_A7_each_addon_key_becomes_its_option(
    key: str, value: Any, option: str, becomes: Any
) -> None:
    found = read(**{key: value})
    assert changed(found.options) == changed(
        msgspec.structs.replace(Options(**DEFAULTS), **{option: becomes})
    )
    assert [reported for reported in found.warnings if "hold up all removals" not in reported] == []


@each_row(
    ("key", "value", "scale_up"),
    [
        ("scaleUpUnscheduledPodEnabled", False, ScaleUp(unschedulable_pods=False)),
        ("scaleUpUtilizationEnabled", False, ScaleUp(rules=False)),
        ("scaleUpCpuUtilizationThreshold", 0.8, ScaleUp(cpu_threshold=80)),
        # never earlier than before
        ("scaleUpMemUtilizationThreshold", "0.705", ScaleUp(memory_threshold=71)),
        ("scaleUpCpuUtilizationThreshold", 0.07, ScaleUp(cpu_threshold=7)),
        ("scaleUpCpuUtilizationThreshold", 1, ScaleUp()),
    ],
)
def test_CCE_A7_scale_out_switches_and_thresholds(key: str, value: Any, scale_up: ScaleUp) -> None:
    found = read(**{key: value})
    assert (found.scale_up, found.warnings) == (scale_up, ())


@each_row(
    ("custom", "removed", "drained"),
    [
        ({"parallelDrain": True}, 10, 2),
        ({"parallelDrain": True, "maxScaleDownParallelism": 8, "maxDrainParallelism": 3}, 8, 3),
        ({"parallelDrain": False, "maxDrainParallelism": 3}, 10, 1),
        ({"maxEmptyBulkDeleteFlag": 5, "maxDrainParallelism": 3}, 5, 1),
    ],
)
def test_CCE_A7_busy_nodes_go_one_by_one_without_parallel_drain(
    custom: Any, removed: int, drained: int
) -> None:
    found = read(**custom)
    assert (found.options.max_scale_down_parallelism, found.options.max_drain_parallelism) == (
        removed,
        drained,
    )
    assert found.warnings == ()


@each_row(
    ("drain", "removed", "other"),
    [(True, 8, "maxEmptyBulkDeleteFlag"), (False, 5, "maxScaleDownParallelism")],
)
def test_CCE_A7_second_of_two_concurrency_numbers_is_reported(
    *, drain: bool, removed: int, other: str
) -> None:
    found = read(parallelDrain=drain, maxEmptyBulkDeleteFlag=5, maxScaleDownParallelism=8)
    assert found.options.max_scale_down_parallelism == removed
    assert [reported.split(": ")[1] for reported in found.warnings] == [other]


@each_row(
    ("key", "value", "says"),
    [
        (
            "expander",
            "priority-ratio",
            "priority-ratio has no counterpart here; priority, least-waste, random is written",
        ),
        (
            "expander",
            "cheapest",
            "is not one of the add-on's; its default, priority, is written instead",
        ),
        ("expander", 5, "is not one of the add-on's; its default, priority, is written instead"),
        (
            "maxNodesTotal",
            "many",
            "'many' is not a whole number from -1 to 2147483647; the add-on's default is written",
        ),
        ("maxNodesTotal", True, "'True' is not a whole number"),
        ("coresTotal", 1.5, "'1.5' is not a whole number"),
        ("memoryTotal", [1], "it is not a whole number"),
        ("scaleDownEnabled", "yes", "'yes' is not true or false"),
        ("scaleDownUtilizationThreshold", 50, "'50' is not a number from 0 to 1"),
        ("scaleDownUtilizationThreshold", float("nan"), "'nan' is not a number from 0 to 1"),
        ("scaleDownUnneededTime", -1, "'-1' is not a time"),
        ("scaleDownUnneededTime", {"minutes": 1}, "it is not a time"),
        ("scaleUpCpuUtilizationThreshold", 0, "'0' is not a number above 0, up to 1"),
        ("scaleUpMemUtilizationThreshold", 80, "'80' is not a number from 0 to 1"),
        (
            "initialNodeGroupBackoffDuration",
            5,
            "is a number whose unit is not documented; the default here stays",
        ),
        (
            "maxNodeGroupBackoffDuration",
            "5",
            "is a number whose unit is not documented; the default here stays",
        ),
        (
            "maxNodeGroupBinPackingDuration",
            10,
            "is a number whose unit is not documented; the default here stays",
        ),
        ("scanInterval", 10, "is a number whose unit is not documented; the default here stays"),
        ("scanInterval", "1s", "'1s' is not a time from 5s to 1h"),
        (
            "newEphemeralVolumesPodScaleUpDelay",
            10,
            "has no counterpart here and is not carried over",
        ),
        ("resetUnNeededWhenScaleUp", False, "has no counterpart here and is not carried over"),
        ("ignoreLocalVolumeNodeAffinity", False, "has no counterpart here and is not carried over"),
        ("multiAZBalance", True, "is not known and is not carried over"),
    ],
)
def test_CCE_A7_settings_that_cannot_be_converted_are_reported_by_name(
    key: str, value: Any, says: str
) -> None:
    found = read(**{key: value})
    (reported,) = found.warnings
    assert reported.startswith(f"addon.json: {key}: {says}")
    assert changed(found.options) == DEFAULTS
    assert (found.scale_up, found.scan_interval) == (ScaleUp(), 60.0)


def test_CCE_A7_interval_with_its_unit_is_converted() -> None:
    assert read(scanInterval="10s").scan_interval == 10.0


def test_CCE_A8_7_pause_after_scale_up_is_reported_where_scale_in_is_on() -> None:
    assert "the vendor advises 0" in read(scaleDownEnabled=True).warnings[0]
    assert read(scaleDownEnabled=True, scaleDownDelayAfterAdd=0).warnings == ()


def test_import_addon_values_of_unknown_keys_are_not_repeated() -> None:
    (reported,) = read(secretKey="EXAMPLE-SECRET").warnings
    assert "EXAMPLE-SECRET" not in reported


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(KEYS)), ANYTHING, max_size=6))
def test_import_addon_invalid_settings_are_reported_and_never_applied(
    custom: dict[str, Any],
) -> None:
    found = read_addon(custom, "a")
    assert found.options.max_nodes_total >= 0
    assert found.options.max_scale_down_parallelism >= 1
    assert found.options.scale_down_unneeded_time >= 0
    assert 1 <= found.scale_up.cpu_threshold <= 100
