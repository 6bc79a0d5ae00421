"""Builds one policy from settings of Huawei Cloud CCE's `autoscaler` add-on (its `custom` block)
and from HorizontalNodeAutoscaler objects, with warnings for its author.

A missing key has the add-on's default, which is written out where Outscaler's default differs:
scale-in off, ten minutes' pause after a removal, limits of the whole cluster. Settings without a
counterpart, and unknown ones, are reported. An object with a mistake is never imported partially.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.cli.migrate.autoscaler_input import ImportArguments
from chalicelib.cli.migrate.autoscaler_policy import DNS_LABEL
from chalicelib.cli.migrate.documents import kind_of, located_documents, mapping
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.quantity import parse_duration
from chalicelib.model.scaling_rules import Rule, RuleObject
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.horizontal_node_autoscaler import read_object
from chalicelib.policy.schema import attribute_of
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.scale_up import ScaleUp

PROVIDER = "huaweicloud"
_ADDON = "autoscaler"
_NOT_IN_NAMES = re.compile(r"[\s/\x00-\x1f\x7f]+")
_LONGEST_NAME = 100


class CceDocument(msgspec.Struct, frozen=True):
    """One relevant document. place: the file's name. cluster_id: of an
    add-on that names its cluster."""

    place: str
    content: Mapping[str, Any]
    cluster_id: str = ""


class CceDocuments(msgspec.Struct, frozen=True):
    """All documents, in the order of the files. others: ignored kinds, each once per file."""

    addons: tuple[CceDocument, ...] = ()
    objects: tuple[CceDocument, ...] = ()
    others: tuple[str, ...] = ()


def sort_documents(texts: Mapping[str, str]) -> CceDocuments:
    """Sort place -> text, as JSON or as YAML with any number of documents, by
    the kind of its documents.

    Raises BadInput for a file that cannot be read as either, and for one
    without relevant documents.
    """
    addons: list[CceDocument] = []
    objects: list[CceDocument] = []
    others: dict[str, None] = {}
    for place, text in texts.items():
        relevant = len(addons) + len(objects)
        for document in located_documents(place, text):
            content = mapping(document.content)
            kind = kind_of(content)
            if kind.lower() == "horizontalnodeautoscaler":
                objects.append(CceDocument(place, content))
            elif (addon := _addon_document(place, content, kind)) is not None:
                addons.append(addon)
            elif not isinstance(document.content, Mapping):
                others[f"{place}: something that is not an object"] = None
            elif kind.lower() != "addon" and "addonTemplateName" not in mapping(
                content.get("spec")
            ):
                others[f"{place}: {kind[:60] or 'an object without a kind'}"] = None
        if len(addons) + len(objects) == relevant:
            raise BadInput(
                place,
                (
                    "holds no Cluster Autoscaler, no settings of CCE's add-on and no "
                    "HorizontalNodeAutoscaler objects"
                ),
                "give Cluster Autoscaler's manifest (kubectl -n kube-system get deploy,sts,ds,cm "
                "-o yaml), values or "
                "command line; or of CCE the answer of GET /api/v3/addons, its custom block, or "
                "the objects",
            )
    return CceDocuments(tuple(addons), tuple(objects), tuple(others))


def _addon_document(place: str, content: Mapping[str, Any], kind: str) -> CceDocument | None:
    """Return settings in any wrapper: an item of the list of add-ons, its values, or
    its block `custom` alone."""
    spec = mapping(content.get("spec"))
    if kind.lower() == "addon" or (not kind and "addonTemplateName" in spec):
        if spec.get("addonTemplateName") != _ADDON:
            return None
        cluster, custom = spec.get("clusterID"), mapping(mapping(spec.get("values")).get("custom"))
        return CceDocument(place, custom, cluster if isinstance(cluster, str) else "")
    values = mapping(content.get("values", content))
    if not kind and "custom" in values:
        return CceDocument(place, mapping(values["custom"]))
    return CceDocument(place, content) if not kind and not KEYS.isdisjoint(content) else None


def assemble(documents: CceDocuments, arguments: ImportArguments) -> tuple[Policy, tuple[str, ...]]:
    """Return (policy, warnings). The mode is shadow, so that an operator reviews
    the policy before it acts.

    The policy lacks values that were not given; reading it reports them. Raises InputErrors for
    objects with mistakes, and for settings of two clusters.
    """
    if len(documents.addons) > 1:
        first, second = (addon.place for addon in documents.addons[:2])
        raise BadInput(
            second,
            f"holds settings of the add-on, and so does {first}",
            "import one cluster at a time",
        )
    warnings = [f"{other}: passed over" for other in documents.others]
    addon_cluster = ""
    if documents.addons:
        (document,) = documents.addons
        addon = read_addon(document.content, document.place)
        addon_cluster = document.cluster_id or addon.cluster_id
        warnings += addon.warnings
        if (
            addon.scale_up.unschedulable_pods
            or addon.scale_up.rules
            or addon.options.scale_down_enabled
        ):
            warnings.append(
                "the vendor's add-on is switched on: switch it off (scaleUpUnscheduledPodEnabled, "
                "scaleUpUtilizationEnabled, scaleDownEnabled) before the mode is active"
            )
    else:
        # The interval is not a decision about nodes, and ten seconds would multiply the passes.
        interval = Policy(name="").scan_interval
        addon = msgspec.structs.replace(
            read_addon({}, "the add-on's defaults"), scan_interval=interval
        )
        warnings.append(
            "no settings of the add-on are given: its defaults are written out, removals off among "
            "them"
        )
    rules, rule_warnings = _read_rules(documents.objects, arguments.time_zone)
    warnings += rule_warnings
    cluster_id = arguments.cluster_id or addon_cluster
    if addon_cluster and cluster_id != addon_cluster:
        warnings.append(
            f"the settings are those of cluster {addon_cluster}, and --cluster-id says {cluster_id}"
        )
    name = arguments.name or (cluster_id if DNS_LABEL.match(cluster_id) else "imported")
    if not arguments.name:
        warnings.append(f"the cluster is called {name}; --name says otherwise")
    scale_up = msgspec.structs.replace(addon.scale_up, cron_time_zone=arguments.time_zone)
    if documents.objects:
        scale_up = msgspec.structs.replace(scale_up, horizontal_node_autoscalers=False)
        warnings.append(
            "scaleUp.horizontalNodeAutoscalers is false, so that the objects do not count in "
            "addition to these rules"
        )
    settings = {
        "clusterId": cluster_id,
        "region": arguments.region,
        "projectId": arguments.project_id,
        "credentialsSecret": arguments.credentials_secret,
    }
    policy = Policy(
        name=name,
        kubernetes=KubernetesAccess(kubeconfig_secret=arguments.kubeconfig_secret),
        providers={PROVIDER: {key: value for key, value in settings.items() if value}},
        rules=rules,
        scale_up=scale_up,
        options=addon.options,
        scan_interval=addon.scan_interval,
    )
    return policy, tuple(warnings)


# -- rules -----------------------------------------------------------------------------------------


def _read_rules(
    documents: Sequence[CceDocument], time_zone: str
) -> tuple[tuple[Rule, ...], list[str]]:
    """Return (rules, warnings). time_zone: of their cron expressions; the
    objects do not contain one.

    Raises InputErrors with every mistake of every object, each with the file and the object's name.
    """
    problems: list[BadInput] = []
    warnings: list[str] = []
    rules: dict[str, Rule] = {}
    keys: set[str] = set()
    for document in documents:
        rule_object = read_object(document.content)
        where = f"{document.place}: {rule_object.key}" if rule_object.name else document.place
        problems += [BadInput(where, problem) for problem in rule_object.problems]
        if rule_object.name and rule_object.key in keys:
            problems.append(BadInput(where, "is given twice", "give each object once"))
        keys.add(rule_object.key)
        warnings += [f"{where}: {warning}" for warning in rule_object.warnings]
        if rule_object.disabled:
            warnings.append(f"{where}: is disabled, so that its rules are not carried over")
        elif not rule_object.problems:
            warnings += [
                f"{where}: {warning}" for warning in _add_rules(rule_object, time_zone, rules)
            ]
    if problems:
        raise InputErrors(tuple(problems))
    return tuple(rules.values()), warnings


def _add_rules(rule_object: RuleObject, time_zone: str, rules: dict[str, Rule]) -> Iterable[str]:
    for rule in rule_object.rules:
        if not rule.groups:
            yield f"rule {rule.name}: has no target and is not carried over"
            continue
        name = _unique_name(rule.name, rule_object.name, rules)
        if name != rule.name:
            yield (
                f"rule {rule.name}: is called {name} in the policy, where names are unique and "
                "have "
                "no spaces and slashes"
            )
        zone = time_zone if rule.cron else "UTC"
        rules[name] = msgspec.structs.replace(rule, name=name, time_zone=zone, source="")


def _unique_name(rule_name: str, object_name: str, rules: Mapping[str, Rule]) -> str:
    """Return the rule's own name if it is valid; otherwise prefixed with its object's name
    and followed by a number."""
    name = _NOT_IN_NAMES.sub("-", rule_name)[:_LONGEST_NAME]
    if name not in rules:
        return name
    prefixed = _NOT_IN_NAMES.sub("-", f"{object_name}.{name}")[: _LONGEST_NAME - 4]
    candidates = (
        prefixed if number == 1 else f"{prefixed}-{number}" for number in range(1, 10_000)
    )
    return next(candidate for candidate in candidates if candidate not in rules)


# -- the add-on ------------------------------------------------------------------------------------

_MINUTE = 60.0
_LONGEST = 20 * 365 * 86400.0
_Read = Callable[[Any], Any]
_Warn = Callable[[str, str], None]


class AddonSettings(msgspec.Struct, frozen=True):
    """The add-on's settings, converted. cluster_id: the cluster they belong to, if they name it."""

    options: Options
    scale_up: ScaleUp
    scan_interval: float
    cluster_id: str
    warnings: tuple[str, ...]


# -- values of the add-on --------------------------------------------------------------------------


def _refused(value: Any, expected: str) -> BadInput:
    """Return the error for an invalid value; its text is left out where it
    is long or no plain value."""
    shown = (
        quote(str(value))
        if isinstance(value, str | int | float | bool) and len(str(value)[:99]) < 99
        else "it"
    )
    return BadInput("", f"{shown} is not {expected}")


def _number(value: Any, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refused(value, expected)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _refused(value, expected) from None
    if not math.isfinite(number) or (isinstance(value, str) and "_" in value):
        raise _refused(value, expected)
    return number


def _whole(least: int, most: int = 2**31 - 1) -> _Read:
    expected = f"a whole number from {least} to {most}"

    def read(value: Any) -> int:
        number = _number(value, expected)
        if number != int(number) or not least <= number <= most:
            raise _refused(value, expected)
        return int(number)

    return read


def _boolean(value: Any) -> bool:
    word = str(value).lower() if isinstance(value, bool | str) else ""
    if word not in ("true", "false"):
        raise _refused(value, "true or false")
    return word == "true"


def _share(value: Any) -> float:
    number = _number(value, "a number from 0 to 1")
    if not 0 <= number <= 1:
        raise _refused(value, "a number from 0 to 1")
    return round(number, 12)


def _percent(value: Any) -> int:
    """Convert a share above 0 to whole percent, rounded up, so that a rule never
    acts earlier than before."""
    percent = math.ceil(round(_share(value) * 100, 6))
    if not percent:
        raise _refused(value, "a number above 0, up to 1")
    return percent


def _minutes(value: Any) -> float:
    """Convert minutes to seconds; a Go duration is accepted, too."""
    seconds = _go_duration(value)
    seconds = _number(value, "a time, such as 10") * _MINUTE if seconds is None else seconds
    if not 0 <= seconds <= _LONGEST:
        raise _refused(value, "a time, such as 10")
    return seconds


def _duration(value: Any) -> float:
    """Read a Go duration as seconds; a number without a unit is refused."""
    seconds = _go_duration(value)
    if seconds is None:
        raise BadInput("", "is a number whose unit is not documented")
    if not 0 <= seconds <= _LONGEST:
        raise _refused(value, "a time, such as 10m")
    return seconds


def _go_duration(value: Any) -> float | None:
    try:
        return parse_duration(value) if isinstance(value, str) else None
    except BadInput:
        return None


def _interval(value: Any) -> float:
    seconds = _duration(value)
    if not 5 <= seconds <= 3600:
        raise _refused(value, "a time from 5s to 1h")
    return seconds


def _maximum(scale: int) -> _Read:
    """Return the reader of a resource's maximum in the cluster; a value not
    above zero means no limit."""
    count = _whole(-1)
    return lambda value: (0, number * scale) if (number := count(value)) > 0 else None


# -- keys of the add-on ----------------------------------------------------------------------------


class _Key(msgspec.Struct, frozen=True):
    """One key. default: the add-on's, as the reader returns it; None: undocumented, so Outscaler's
    default applies. ours: the policy's key, where it is another one."""

    name: str
    read: _Read
    default: Any = None
    ours: str = ""

    @property
    def field(self) -> str:
        """The field of Options or ScaleUp."""
        return attribute_of(self.ours or self.name)


_OPTIONS = (
    _Key("maxNodesTotal", lambda value: max(_whole(-1)(value), 0), 1000),
    _Key("coresTotal", _maximum(1), (0, 32000)),
    _Key("memoryTotal", _maximum(2**30), (0, 128000 * 2**30)),
    _Key("scaleDownEnabled", _boolean, default=False),
    _Key("scaleDownUtilizationThreshold", _share, 0.5),
    _Key("scaleDownUnneededTime", _minutes, 10 * _MINUTE),
    _Key("scaleDownUnreadyTime", _minutes, 20 * _MINUTE),
    _Key("unremovableNodeRecheckTimeout", _minutes, 5 * _MINUTE),
    _Key("scaleDownDelayAfterAdd", _minutes, 10 * _MINUTE),
    _Key("scaleDownDelayAfterDelete", _minutes, 10 * _MINUTE),
    _Key("scaleDownDelayAfterFailure", _minutes, 3 * _MINUTE),
    _Key(
        "ignoreDaemonSetsUtilization", _boolean, default=False, ours="ignoreDaemonsetsUtilization"
    ),
    _Key("skipNodesWithCustomControllerPods", _boolean, default=True),
    _Key("maxNodeProvisionTime", _minutes, 15 * _MINUTE),
    _Key(
        "maxGracefulTerminationFlag", _whole(0, 86400 * 365), 600, ours="maxGracefulTerminationSec"
    ),
    _Key("initialNodeGroupBackoffDuration", _duration),
    _Key("maxNodeGroupBackoffDuration", _duration),
    _Key("maxNodeGroupBinPackingDuration", _duration, ours="maxNodegroupBinpackingDuration"),
)
_SCALE_UP = (
    _Key("scaleUpUnscheduledPodEnabled", _boolean, default=True, ours="unschedulablePods"),
    _Key("scaleUpUtilizationEnabled", _boolean, default=True, ours="rules"),
    _Key("scaleUpCpuUtilizationThreshold", _percent, 100, ours="cpuThreshold"),
    _Key("scaleUpMemUtilizationThreshold", _percent, 100, ours="memoryThreshold"),
)
_PARALLEL_DRAIN = _Key("parallelDrain", _boolean, default=False)
_MOST_EMPTY = _Key("maxEmptyBulkDeleteFlag", _whole(1), 10)
_MOST_REMOVED = _Key("maxScaleDownParallelism", _whole(1), 10)
_MOST_DRAINED = _Key("maxDrainParallelism", _whole(1), 2)
_SCAN_INTERVAL = _Key("scanInterval", _interval)
_BY_PRIORITY = ("priority", "least-waste", "random")  # the add-on's single word becomes a chain
_EXPANDERS = {
    "random": ("random",),
    "most-pods": ("most-pods",),
    "least-waste": ("least-waste",),
    "priority": _BY_PRIORITY,
    "priority-ratio": _BY_PRIORITY,
}
_NO_COUNTERPART = (
    "newEphemeralVolumesPodScaleUpDelay",
    "resetUnNeededWhenScaleUp",
    "ignoreLocalVolumeNodeAffinity",
)
_SINGLE = (_PARALLEL_DRAIN, _MOST_EMPTY, _MOST_REMOVED, _MOST_DRAINED, _SCAN_INTERVAL)
KEYS = frozenset(
    {
        *(key.name for key in (*_OPTIONS, *_SCALE_UP, *_SINGLE)),
        *_NO_COUNTERPART,
        "expander",
        "cluster_id",
    }
)


def read_addon(custom: Mapping[str, Any], place: str) -> AddonSettings:
    """Convert the settings in `custom`; never raises: an unusable setting keeps its default
    and is reported at `place`."""
    warnings: list[str] = []

    def warn(name: str, text: str) -> None:
        warnings.append(f"{place}: {name}: {text}")

    options = _fields(_OPTIONS, custom, warn)
    options["expander"] = _expander(custom, warn)
    options.update(_parallelism(custom, warn))
    scale_up = _fields(_SCALE_UP, custom, warn)
    interval = _value(_SCAN_INTERVAL, custom, warn)
    for name in _NO_COUNTERPART:
        if name in custom:
            warn(name, "has no counterpart here and is not carried over")
    for name in custom:
        if name not in KEYS:
            warn(str(name)[:60], "is not known and is not carried over")
    if options.get("scale_down_enabled") and options["scale_down_delay_after_add"] > 0:
        warn(
            "scaleDownDelayAfterAdd",
            (
                "groups that keep growing hold up all removals for so long; where both are on, the "
                "vendor advises 0"
            ),
        )
    cluster = custom.get("cluster_id")
    return AddonSettings(
        Options(**options),
        ScaleUp(**scale_up),
        60.0 if interval is None else interval,
        cluster if isinstance(cluster, str) else "",
        tuple(warnings),
    )


def _fields(keys: tuple[_Key, ...], custom: Mapping[str, Any], warn: _Warn) -> dict[str, Any]:
    values = {key.field: _value(key, custom, warn) for key in keys}
    return {field: value for field, value in values.items() if value is not None}


def _value(key: _Key, custom: Mapping[str, Any], warn: _Warn) -> Any:
    if custom.get(key.name) is None:
        return key.default
    try:
        return key.read(custom[key.name])
    except BadInput as error:
        counts = (
            "the default here stays"
            if key.default is None
            else "the add-on's default is written instead"
        )
        warn(key.name, f"{error.problem}; {counts}")
        return key.default


def _expander(custom: Mapping[str, Any], warn: _Warn) -> tuple[str, ...]:
    value = custom.get("expander", "priority")
    name = value.strip() if isinstance(value, str) else "priority" if value is None else ""
    if name not in _EXPANDERS:
        warn("expander", "is not one of the add-on's; its default, priority, is written instead")
    elif name == "priority-ratio":
        warn(
            "expander",
            (
                "priority-ratio has no counterpart here; priority, least-waste, random is written "
                "instead"
            ),
        )
    return _EXPANDERS.get(name, _BY_PRIORITY)


def _parallelism(custom: Mapping[str, Any], warn: _Warn) -> dict[str, int]:
    """Return how many nodes are removed at once. Without parallelDrain, idle nodes are removed
    together and all others one by one."""
    parallel_drain = _value(_PARALLEL_DRAIN, custom, warn)
    most_empty, most_removed = (
        _value(_MOST_EMPTY, custom, warn),
        _value(_MOST_REMOVED, custom, warn),
    )
    most_drained = _value(_MOST_DRAINED, custom, warn)
    newer_counts = parallel_drain or _MOST_EMPTY.name not in custom
    if most_empty != most_removed and {_MOST_EMPTY.name, _MOST_REMOVED.name} <= custom.keys():
        other, switch = (
            (_MOST_EMPTY if newer_counts else _MOST_REMOVED),
            "true" if parallel_drain else "false",
        )
        warn(other.name, f"is not carried over: with parallelDrain {switch} the other one counts")
    return {
        "max_scale_down_parallelism": most_removed if newer_counts else most_empty,
        "max_drain_parallelism": most_drained if parallel_drain else 1,
    }
