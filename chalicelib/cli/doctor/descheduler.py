"""Reads the descheduler's policy, and names plugins that work against marks of nodes that leave."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from chalicelib.cli.doctor.finding import QUESTIONS, DoctorContext, Finding, Severity, finding
from chalicelib.cli.doctor.running_autoscalers import RawObjects
from chalicelib.cluster.errors import Forbidden
from chalicelib.model.errors import MALFORMED
from chalicelib.model.node import LEAVING_MARKS
from chalicelib.net.safe_yaml import parsed
from chalicelib.policy.settings.consolidation import ConsolidationMode, Steering

_PATH = "/api/v1/namespaces/kube-system/configmaps"
_KEY = "policy.yaml"
_TAINTS = "RemovePodsViolatingNodeTaints"
_AGAINST = {
    _TAINTS: "evicts all pods of marked nodes at once",
    "LowNodeUtilization": "moves pods back to the emptiest nodes",
    "RemoveDuplicates": "moves replicas back to the emptiest nodes",
    "RemovePodsViolatingTopologySpreadConstraint": "moves replicas back to the emptiest nodes",
}
_MOST_VALUES = 10_000  # of a policy, plus one for every 64 characters of its text
_FLAG = "includePreferNoSchedule"
_DAMAGED: tuple[type[Exception], ...] = (yaml.YAMLError, *MALFORMED)
_SPARE_MARKS = f"add excludedTaints: [{', '.join(LEAVING_MARKS)}], or remove {_FLAG}"


class _LabelledMeta(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None


class _PolicyMap(msgspec.Struct, frozen=True):
    """A ConfigMap."""

    metadata: _LabelledMeta = _LabelledMeta()
    data: dict[str, str] | None = None

    @property
    def is_of_descheduler(self) -> bool:
        """Return whether its name or a label of its program says so."""
        labels = self.metadata.labels or {}
        names = (self.metadata.name, labels.get("app"), labels.get("app.kubernetes.io/name"))
        return any("descheduler" in (name or "") for name in names)


def check_descheduler(context: DoctorContext) -> Iterator[Finding]:
    """DR36: plugins that move pods to marked nodes, or off all of them at once."""
    consolidation = context.policy.consolidation
    if consolidation.mode is ConsolidationMode.OFF or consolidation.steering is Steering.OFF:
        return
    try:
        config_maps = list(_config_maps(context))
    except Forbidden:
        text = "ConfigMaps of kube-system may not be listed"
        yield finding("DR36", text, severity=Severity.UNASKED, fix=QUESTIONS["DR07"].fix)
        return
    for config_map in config_maps:
        text = (config_map.data or {}).get(_KEY, "")
        place = f"ConfigMap kube-system/{config_map.metadata.name[:253]}, {_KEY}"
        try:
            plugins = sorted(set(_plugins(parsed(text, most=_MOST_VALUES) or {})) & _AGAINST.keys())
        except _DAMAGED:
            yield finding("DR36", f"{place}: cannot be read", fix="correct it")
            continue
        for plugin in plugins:
            word = rf"{_FLAG}\W+true" if plugin == _TAINTS else plugin
            match = re.search(rf"(?m)^[^#\n]*{word}", text)  # not in a comment
            line = text.count("\n", 0, match.end()) + 1 if match else 1
            fix = _SPARE_MARKS if plugin == _TAINTS else ""
            yield finding("DR36", f"{place}:{line}: {plugin} {_AGAINST[plugin]}", fix=fix)


def _config_maps(context: DoctorContext) -> Iterator[_PolicyMap]:
    """Yield the ConfigMaps of the descheduler. Raises ClusterError."""
    for page in context.observer.list_pages(_PATH):
        for raw in msgspec.json.decode(page.body, type=RawObjects).items or ():
            try:
                config_map = msgspec.json.decode(raw, type=_PolicyMap)
            except MALFORMED:
                continue
            if config_map.is_of_descheduler:
                yield config_map


def _plugins(policy: Any) -> Iterator[str]:
    """Yield the plugins that run, without those whose arguments spare marks. Raises one of
    MALFORMED."""
    running = [  # v1alpha1
        (name, strategy.get("params"))
        for name, strategy in (policy.get("strategies") or {}).items()
        if strategy.get("enabled")
    ]
    for profile in policy.get("profiles") or ():  # v1alpha2
        configs = profile.get("pluginConfig") or ()
        arguments = {config["name"]: config.get("args") for config in configs}
        points = (profile.get("plugins") or {}).values()
        names = [name for point in points for name in (point or {}).get("enabled") or ()]
        running += [(name, arguments.get(name)) for name in names]
    for name, args in running:
        spared = (args or {}).get("excludedTaints") or ()
        includes_soft = (args or {}).get(_FLAG) and not {*LEAVING_MARKS}.issubset(spared)
        if name != _TAINTS or includes_soft:
            yield name
