"""Reads values of Cluster Autoscaler's Helm chart, as its templates make a command line of them.

Values state the same settings as flags under other names. Each value becomes the flag that the chart renders, so that
the translation of flags is the only one. The charts 1.x and 9.x are read alike.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from chalicelib.command.importers.autoscaler_input import AutoscalerInput
from chalicelib.command.importers.chart_values import UNUSED, WITHOUT_EFFECT
from chalicelib.command.importers.command_line import Word, read_command_line
from chalicelib.command.importers.helm_environment import read_environment
from chalicelib.command.importers.image_version import release_of
from chalicelib.command.importers.input_forms import SUB_CHART, is_helm_values
from chalicelib.command.importers.input_rows import InputRows, unlisted
from chalicelib.command.importers.placeholders import placeholder_problems
from chalicelib.command.importers.report import Verdict
from chalicelib.policy.diagnostics import closest
from chalicelib.policy.priority_configmap import CONFIG_MAP, KEY

_NAMESPACE = "kube-system"
_MODES = {  # of clusterAPIMode -> the flags that the chart renders
    "incluster-incluster": (),
    "incluster-kubeconfig": ("cloud-config",),
    "kubeconfig-incluster": ("kubeconfig", "clusterapi-cloud-config-authoritative"),
    "kubeconfig-kubeconfig": ("kubeconfig", "cloud-config", "clusterapi-cloud-config-authoritative"),
    "single-kubeconfig": ("kubeconfig",),
}
_PATHS = {
    "cloud-config": ("clusterAPICloudConfigPath", "/etc/kubernetes/mgmt-kubeconfig"),
    "kubeconfig": ("clusterAPIWorkloadKubeconfigPath", "/etc/kubernetes/value"),
}
_DISCOVERED = ("clusterName", "namespace", "labels")


def read_helm_values(
    place: str, document: Mapping[str, Any], lines: Mapping[tuple[str, ...], int], *, namespace: str, image_version: str
) -> AutoscalerInput:
    """Return the configuration that the values describe.

    lines: path of keys -> line; may be empty. namespace: of the release; empty: kube-system. image_version: the release
    that counts instead of the image's tag. Raises InputErrors for templates and for values that deploy nothing.
    """
    values: Mapping[str, Any] = document
    root: tuple[str, ...] = ()
    sub = document.get(SUB_CHART)
    if isinstance(sub, Mapping) and not is_helm_values({key: document[key] for key in document if key != SUB_CHART}):
        values, root = sub, (SUB_CHART,)
    rows = InputRows(place, lines, root)
    if root and len(document) > 1:
        others = sorted(str(key) for key in document if key != SUB_CHART)
        named = ", ".join(others[:8]) + (", …" if len(others) > 8 else "")
        rows.remark((), Verdict.NO_EFFECT, "values of other charts", word=named)
    read = _Values(values, rows, namespace or _NAMESPACE)
    if not _deploys(values):
        rows.problem(
            (),
            "these values deploy no autoscaler: autoscalingGroups and autoDiscovery are both empty",
            "set one of them, or give the manifest that runs",
        )
    for name, value in rows.entries((), values).items():
        if name in _READERS:
            _READERS[name](read, (name,), value)
        elif name in WITHOUT_EFFECT:
            rows.remark((name,), Verdict.NO_EFFECT, WITHOUT_EFFECT[name])
        elif name in UNUSED:
            rows.remark((name,), Verdict.NO_EFFECT, UNUSED[name])
        else:
            near = closest(name, (*_READERS, *WITHOUT_EFFECT, *UNUSED))
            rows.remark((name,), Verdict.UNKNOWN, f"did you mean {near}?" if near else "")
    read.finish()
    for problem in placeholder_problems(rows.arguments, rows.variables):
        rows.add(problem)
    rows.check()
    image = read.image()
    return AutoscalerInput(
        place=place,
        kind="Helm values",
        namespace=read.namespace,
        image=image,
        version=release_of(image, image_version),
        arguments=tuple(rows.arguments),
        variables=tuple(rows.variables),
        mounts=tuple(rows.mounts),
        remarks=tuple(rows.remarks),
        objects=read.objects,
    )


def _deploys(values: Mapping[str, Any]) -> bool:
    discovery = values.get("autoDiscovery")
    discovered = isinstance(discovery, Mapping) and any(discovery.get(key) for key in _DISCOVERED)
    return bool(values.get("autoscalingGroups")) or discovered


class _Values:
    """The readers of single values. Those that depend on others are read in finish()."""

    def __init__(self, values: Mapping[str, Any], rows: InputRows, namespace: str) -> None:
        self.values, self.rows, self.namespace = values, rows, namespace
        self.objects: tuple[tuple[str, Mapping[str, Any]], ...] = ()
        written = values.get("cloudProvider")
        self.provider = written if isinstance(written, str) else ""

    def image(self) -> str:
        """Return `repository:tag`, empty without a tag."""
        image = self.values.get("image")
        if not isinstance(image, Mapping) or not isinstance(image.get("tag"), str | int | float):
            return ""
        return f"{str(image.get('repository') or 'cluster-autoscaler')[:200]}:{str(image['tag'])[:100]}"

    def cloud_provider(self, path: tuple[str, ...], value: Any) -> None:
        """Add the provider's flag."""
        text = self.rows.text(path, value)
        if text:
            self.rows.argument(path, "cloud-provider", text)

    def groups(self, path: tuple[str, ...], value: Any) -> None:
        """Add one --nodes per group."""
        for at, group in enumerate(self.rows.items(path, value)):
            own = (*path, str(at))
            entry = self.rows.entries(own, group)
            for key in unlisted(entry, ("name", "minSize", "maxSize")):
                self.rows.remark((*own, key), Verdict.UNKNOWN, "a group has name, minSize and maxSize")
            parts = [self.rows.text((*own, key), entry.get(key)) for key in ("minSize", "maxSize", "name")]
            if all(key in entry for key in ("minSize", "maxSize", "name")) and None not in parts:
                self.rows.argument(own, "nodes", ":".join(part for part in parts if part is not None))
            elif not all(key in entry for key in ("minSize", "maxSize", "name")):
                self.rows.problem(own, "has not all of name, minSize and maxSize", "write the three of them")

    def discovery(self, path: tuple[str, ...], value: Any) -> None:
        """Add the flag of discovery for clusterapi, the only provider here that has one."""
        rows, entries = self.rows, self.rows.entries(path, value)
        specs: list[str] = []
        for key in ("clusterName", "namespace"):
            text = rows.text((*path, key), entries.get(key) or None)
            if text:
                specs.append(f"{key}={text}")
        specs += self._labels((*path, "labels"), entries.get("labels"))
        for key in unlisted(entries, _DISCOVERED):
            verdict = Verdict.NO_EFFECT if key in ("tags", "roles") else Verdict.UNKNOWN
            rows.remark((*path, key), verdict, "for other providers" if verdict is Verdict.NO_EFFECT else "")
        if not specs:
            return
        if self.provider == "clusterapi":
            spec = f"clusterapi:{','.join(specs)}"
            rows.argument(path, "node-group-auto-discovery", spec, word=f"{rows.word(path)}: {spec}")
        else:
            named = self.provider or "this provider"
            rows.remark(path, Verdict.NO_EFFECT, f"the chart renders no flag of it for {named}")

    def _labels(self, path: tuple[str, ...], value: Any) -> list[str]:
        listed = [value] if isinstance(value, Mapping) else self.rows.items(path, value)
        found: list[str] = []
        for at, labels in enumerate(listed):
            own = path if labels is value else (*path, str(at))
            for key, each in self.rows.entries(own, labels).items():
                text = self.rows.text((*own, key), each)
                if self.provider == "clusterapi":
                    found.append(f"{key}={text or ''}")
                else:
                    found.append(key)
        return found

    def extra_args(self, path: tuple[str, ...], value: Any) -> None:
        """Add flags, in the order of a template's output: by name. A part after `_` only makes a key unique."""
        for key, each in sorted(self.rows.entries(path, value).items()):
            own = (*path, key)
            known = len(self.rows.arguments)
            flag = key.partition("_")[0]
            text = self.rows.text(own, each)
            if text is not None:
                self.rows.argument(own, flag, text, word=f"{self.rows.word(own)}: {text}")
            elif each is None:
                self.rows.argument(own, flag, None)
            if not flag and len(self.rows.arguments) > known:
                self.rows.problem(own, "has no name before '_'", "write the flag's name with dashes")

    def custom_args(self, path: tuple[str, ...], value: Any) -> None:
        """Add words of a command line."""
        words: list[Word] = []
        for at, each in enumerate(self.rows.items(path, value)):
            own = (*path, str(at))
            text = self.rows.text(own, each)
            if text is not None:
                words.append(Word(self.rows.place(own), text))
        if words:
            read = read_command_line(words)
            self.rows.arguments.extend(read.arguments)
            self.rows.remarks.extend(read.remarks)
            for problem in read.problems:
                self.rows.add(problem)

    def priorities(self, path: tuple[str, ...], value: Any) -> None:
        """Keep the ConfigMap of the priority expander, which the chart renders for that expander only."""
        if not value:
            return
        extra = self.values.get("extraArgs")
        expander = str(extra.get("expander", ""))[:500] if isinstance(extra, Mapping) else ""
        if "priority" not in expander:
            self.rows.remark(path, Verdict.NO_EFFECT, "the chart renders it only with expander priority in extraArgs")
            return
        text = value if isinstance(value, str) else _as_yaml(self.rows.entries(path, value), value)
        content = {
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": self.namespace},
            "data": {KEY: text},
        }
        self.objects = ((self.rows.place(path), content),)

    def cloud_config_path(self, path: tuple[str, ...], value: Any) -> None:
        """Report a path that the chart hands to other providers only."""
        if value:
            named = self.provider or "this provider"
            text = f"the chart renders no flag of it for {named}: it needs extraArgs.cloud-config"
            self.rows.remark(path, Verdict.TOLD, text)

    def finish(self) -> None:
        """Read the values that depend on each other: the provider, the namespace, topologies, the environment."""
        if "cloudProvider" not in self.values:
            self.rows.argument((), "cloud-provider", "aws", word="no cloudProvider: aws, the chart's default")
        self._topology()
        read_environment(self.values, self.rows, self.namespace, self.provider)
        own = self.namespace
        text = "the release's namespace is not in its values: --workload NAMESPACE/NAME gives it"
        if own != _NAMESPACE:
            text = "Outscaler's Role and RoleBinding belong into this namespace, too"
        self.rows.argument((), "namespace", own, word=f"--namespace={own}", read_as=text)

    def _topology(self) -> None:
        rows, path = self.rows, ("clusterAPIMode",)
        keys = ("clusterAPIMode", "clusterAPIKubeconfigSecret", *(key for key, _ in _PATHS.values()))
        if self.provider != "clusterapi":
            for key in (*keys, "clusterAPIConfigMapsNamespace"):
                if self.values.get(key):
                    rows.remark((key,), Verdict.NO_EFFECT, "for clusterapi only")
            return
        mode = rows.text(path, self.values.get("clusterAPIMode")) or "incluster-incluster"
        if mode not in _MODES:
            rows.problem(path, f"is not one of {', '.join(_MODES)}")
            return
        if self.values.get("clusterAPIMode"):
            rows.remark(path, Verdict.TRANSLATED, f"mode {mode}", "spec.kubernetes.kubeconfigSecret")
        used: list[str] = []
        for flag in _MODES[mode]:
            key, default = _PATHS.get(flag, ("clusterAPIMode", ""))
            value = (rows.text((key,), self.values.get(key) or None) or default) if flag in _PATHS else None
            used += [value] if value else []
            rows.argument((key,), flag, value, word=f"{key}: {value}" if value else f"{key}: {mode}")
        for flag, (key, _) in _PATHS.items():
            if self.values.get(key) and flag not in _MODES[mode]:
                rows.remark((key,), Verdict.NO_EFFECT, f"mode {mode} does not use it")
        self._kubeconfig_secret(used)
        self._config_maps_namespace(mode)

    def _kubeconfig_secret(self, used: list[str]) -> None:
        path = ("clusterAPIKubeconfigSecret",)
        name = self.rows.text(path, self.values.get(path[0]) or None)
        if not name:
            return
        if not used:
            self.rows.remark(path, Verdict.NO_EFFECT, "the mode has no kubeconfig")
            return
        folders = sorted({posixpath.dirname(each) for each in used})
        for folder in folders:
            self.rows.mount(path, folder, f"{self.namespace}/{name}")
        self.rows.remark(path, Verdict.TO_STORE, "its key value is what goes into Secrets Manager")

    def _config_maps_namespace(self, mode: str) -> None:
        path = ("clusterAPIConfigMapsNamespace",)
        given = self.rows.text(path, self.values.get(path[0]) or None)
        if mode == "kubeconfig-incluster":
            self.namespace = given or _NAMESPACE
            if given:
                self.rows.remark(path, Verdict.TRANSLATED, "", "spec.options.namespace")
        elif given:
            self.rows.remark(path, Verdict.NO_EFFECT, "for mode kubeconfig-incluster only")


def _as_yaml(entries: Mapping[str, Any], value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True) if entries else ""


def _later(_: _Values, path: tuple[str, ...], value: Any) -> None:
    del path, value  # finish() reads it


_READERS: Mapping[str, Callable[[_Values, tuple[str, ...], Any], None]] = {
    "cloudProvider": _Values.cloud_provider,
    "autoscalingGroups": _Values.groups,
    "autoDiscovery": _Values.discovery,
    "extraArgs": _Values.extra_args,
    "customArgs": _Values.custom_args,
    "expanderPriorities": _Values.priorities,
    "cloudConfigPath": _Values.cloud_config_path,
    **dict.fromkeys(
        (
            "image",
            "clusterAPIMode",
            "clusterAPIKubeconfigSecret",
            "clusterAPICloudConfigPath",
            "clusterAPIWorkloadKubeconfigPath",
            "clusterAPIConfigMapsNamespace",
            "secretKeyRefNameOverride",
            "envFromSecret",
            "envFromConfigMap",
            "extraEnv",
            "extraEnvConfigMaps",
            "extraEnvSecrets",
            "extraVolumeSecrets",
            "extraVolumes",
            "extraVolumeMounts",
        ),
        _later,
    ),
}
