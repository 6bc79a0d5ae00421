"""Converts settings of CCE's `autoscaler` add-on (its `custom` block) into options.

A missing key has the add-on's default, which is written out where Outscaler's default differs: scale-in off, ten
minutes' pause after a removal, limits of the whole cluster. Settings without a counterpart, and unknown ones, are
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chalicelib.command.importers.lenient_values import Read, boolean, go_duration, percent, refused, share, span, whole
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Options
from chalicelib.model.scaling_rules import ScaleUp

_MINUTE = 60.0


class AddonSettings(msgspec.Struct, frozen=True):
    """The add-on's settings, converted. cluster_id: the cluster they belong to, if they name it."""

    options: Options
    scale_up: ScaleUp
    scan_interval: float
    cluster_id: str
    warnings: tuple[str, ...]


class _Key(msgspec.Struct, frozen=True):
    """One key. default: the add-on's, as the reader returns it; None: undocumented, so Outscaler's default applies."""

    name: str
    lands: str
    read: Read
    default: Any = None


def _cap(scale: int) -> Read:
    """Return the maximum of a resource in the whole cluster; a value not above zero means no limit and returns None."""
    count = whole(-1, 2**31 - 1)
    return lambda value: (0, found * scale) if (found := count(value)) > 0 else None


_OPTIONS = (
    _Key("maxNodesTotal", "max_nodes_total", lambda value: max(whole(-1)(value), 0), 1000),
    _Key("coresTotal", "cores_total", _cap(1), (0, 32000)),
    _Key("memoryTotal", "memory_total", _cap(2**30), (0, 128000 * 2**30)),
    _Key("scaleDownEnabled", "scale_down_enabled", boolean, default=False),
    _Key("scaleDownUtilizationThreshold", "scale_down_utilization_threshold", share, 0.5),
    _Key("scaleDownUnneededTime", "scale_down_unneeded_time", span(_MINUTE), 10 * _MINUTE),
    _Key("scaleDownUnreadyTime", "scale_down_unready_time", span(_MINUTE), 20 * _MINUTE),
    _Key("unremovableNodeRecheckTimeout", "unremovable_node_recheck_timeout", span(_MINUTE), 5 * _MINUTE),
    _Key("scaleDownDelayAfterAdd", "scale_down_delay_after_add", span(_MINUTE), 10 * _MINUTE),
    _Key("scaleDownDelayAfterDelete", "scale_down_delay_after_delete", span(_MINUTE), 10 * _MINUTE),
    _Key("scaleDownDelayAfterFailure", "scale_down_delay_after_failure", span(_MINUTE), 3 * _MINUTE),
    _Key("ignoreDaemonSetsUtilization", "ignore_daemonsets_utilization", boolean, default=False),
    _Key("skipNodesWithCustomControllerPods", "skip_nodes_with_custom_controller_pods", boolean, default=True),
    _Key("maxNodeProvisionTime", "max_node_provision_time", span(_MINUTE), 15 * _MINUTE),
    _Key("maxGracefulTerminationFlag", "max_graceful_termination_sec", whole(0, 86400 * 365), 600),
    _Key("initialNodeGroupBackoffDuration", "initial_node_group_backoff_duration", go_duration),
    _Key("maxNodeGroupBackoffDuration", "max_node_group_backoff_duration", go_duration),
    _Key("maxNodeGroupBinPackingDuration", "max_nodegroup_binpacking_duration", go_duration),
)
_SCALE_UP = (
    _Key("scaleUpUnscheduledPodEnabled", "unschedulable_pods", boolean, default=True),
    _Key("scaleUpUtilizationEnabled", "rules", boolean, default=True),
    _Key("scaleUpCpuUtilizationThreshold", "cpu_threshold", percent, 100),
    _Key("scaleUpMemUtilizationThreshold", "memory_threshold", percent, 100),
)
_BY_PRIORITY = ("priority", "least-waste", "random")
_EXPANDERS = {
    "random": ("random",),
    "most-pods": ("most-pods",),
    "least-waste": ("least-waste",),
    "priority": _BY_PRIORITY,
    "priority-ratio": _BY_PRIORITY,
}
_PARALLEL = ("parallelDrain", "maxEmptyBulkDeleteFlag", "maxScaleDownParallelism", "maxDrainParallelism")
_NO_COUNTERPART = ("newEphemeralVolumesPodScaleUpDelay", "resetUnNeededWhenScaleUp", "ignoreLocalVolumeNodeAffinity")
_ELSEWHERE = ("expander", "scanInterval", "cluster_id")
KEYS = frozenset({*(key.name for key in (*_OPTIONS, *_SCALE_UP)), *_PARALLEL, *_NO_COUNTERPART, *_ELSEWHERE})


def read_addon(custom: Mapping[str, Any], place: str) -> AddonSettings:
    """Convert the settings in `custom`; never raises: an unusable setting keeps its default and is reported at
    `place`."""
    told: list[str] = []

    def warn(name: str, text: str) -> None:
        told.append(f"{place}: {name}: {text}")

    options = _take(_OPTIONS, custom, warn)
    options["expander"] = _expander(custom, warn)
    options.update(_parallelism(custom, warn))
    scale_up = _take(_SCALE_UP, custom, warn)
    interval = _value(_Key("scanInterval", "", _interval), custom, warn)
    for name in _NO_COUNTERPART:
        if name in custom:
            warn(name, "has no counterpart here and is not carried over")
    for name in custom:
        if name not in KEYS:
            warn(str(name)[:60], "is not known and is not carried over")
    if options.get("scale_down_enabled") and options["scale_down_delay_after_add"] > 0:
        warn(
            "scaleDownDelayAfterAdd",
            "groups that keep growing hold up all removals for so long; where both are on, the vendor advises 0",
        )
    cluster = custom.get("cluster_id")
    return AddonSettings(
        Options(**options),
        ScaleUp(**scale_up),
        60.0 if interval is None else interval,
        cluster if isinstance(cluster, str) else "",
        tuple(told),
    )


def _take(keys: tuple[_Key, ...], custom: Mapping[str, Any], warn: Callable[[str, str], None]) -> dict[str, Any]:
    found = {key.lands: _value(key, custom, warn) for key in keys}
    return {lands: value for lands, value in found.items() if value is not None}


def _value(key: _Key, custom: Mapping[str, Any], warn: Callable[[str, str], None]) -> Any:
    if custom.get(key.name) is None:
        return key.default
    try:
        return key.read(custom[key.name])
    except BadInput as error:
        what = "the add-on's default" if key.default is not None else "the default here"
        warn(
            key.name,
            f"{error.problem}; {what} is written instead"
            if key.default is not None
            else f"{error.problem}; {what} stays",
        )
        return key.default


def _interval(value: Any) -> float:
    seconds = go_duration(value)
    if not 5 <= seconds <= 3600:
        raise refused(value, "a time from 5s to 1h")
    return seconds


def _expander(custom: Mapping[str, Any], warn: Callable[[str, str], None]) -> tuple[str, ...]:
    """Convert the add-on's single word into a chain: priority continues with least-waste and random."""
    given = custom.get("expander")
    name = given.strip() if isinstance(given, str) else "" if given is not None else "priority"
    if name not in _EXPANDERS:
        warn("expander", "is not one of the add-on's; its default, priority, is written instead")
    elif name == "priority-ratio":
        warn("expander", "priority-ratio has no counterpart here; priority, least-waste, random is written instead")
    return _EXPANDERS.get(name, _BY_PRIORITY)


def _parallelism(custom: Mapping[str, Any], warn: Callable[[str, str], None]) -> dict[str, int]:
    """Return how many nodes are removed at once. Without parallelDrain, idle nodes are removed together and all others
    one by one."""
    together = _value(_Key("parallelDrain", "", boolean, default=False), custom, warn)
    idle = _value(_Key("maxEmptyBulkDeleteFlag", "", whole(1), 10), custom, warn)
    all_kinds = _value(_Key("maxScaleDownParallelism", "", whole(1), 10), custom, warn)
    drained = _value(_Key("maxDrainParallelism", "", whole(1), 2), custom, warn)
    newer = together or "maxEmptyBulkDeleteFlag" not in custom
    if idle != all_kinds and {"maxEmptyBulkDeleteFlag", "maxScaleDownParallelism"} <= custom.keys():
        other = "maxEmptyBulkDeleteFlag" if newer else "maxScaleDownParallelism"
        warn(other, f"is not carried over: with parallelDrain {'true' if together else 'false'} the other one counts")
    return {
        "max_scale_down_parallelism": all_kinds if newer else idle,
        "max_drain_parallelism": drained if together else 1,
    }
