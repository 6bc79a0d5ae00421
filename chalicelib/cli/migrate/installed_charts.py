"""Finds Cluster Autoscaler's chart among the objects of tools that install charts: Flux, Argo CD,
the Helm controller of K3s and RKE2, Cluster API's add-on provider for Helm, EKS Anywhere.

Each kind says where its values stand and in which order they count. What an object only refers to
is taken from the same input; otherwise the report names it with the command that prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.cli.migrate.autoscaler_input import Remark
from chalicelib.cli.migrate.documents import (
    Located,
    Path,
    api_group_of,
    kind_of,
    listed,
    mapping,
    name_of,
    shown_path,
    text_of,
)
from chalicelib.cli.migrate.helm_values import SUB_CHART
from chalicelib.cli.migrate.report import Verdict
from chalicelib.cli.migrate.scripts import is_autoscaler

SECRET, CONFIG_MAP = "Secret", "ConfigMap"
_MOST_LAYERS = 500
_OBJECT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}\Z")
_VERSION = re.compile(r"(?:-v?[0-9][A-Za-z0-9.+-]*)?(?:\.tgz)?\Z")
GROUP_KEYS = ("autoDiscovery", "autoscalingGroups")
"""Values of the autoscaler's chart that name its groups: without both it deploys nothing."""
_OWN_KEY = re.compile(rf"^[\"']?(?:{'|'.join((SUB_CHART, *GROUP_KEYS))})[\"']?:", re.MULTILINE)
_SUB_CHART_KEY = re.compile(rf"^[\"']?{SUB_CHART}[\"']?:", re.MULTILINE)


class InlineLayer(msgspec.Struct, frozen=True):
    """Values that an object has as an object or as YAML text."""

    document: Located
    path: Path

    @property
    def value(self) -> Any:
        """Return what stands at the path."""
        return value_at(self.document.content, self.path)


class SettingLayer(msgspec.Struct, frozen=True):
    """One value, as Helm's --set. as_text: as --set-string."""

    place: str
    name: str
    value: str
    as_text: bool = False


class ReferenceLayer(msgspec.Struct, frozen=True):
    """Values in a Secret or ConfigMap. target: the path of a single value, empty for all."""

    place: str
    word: str
    kind: str
    namespace: str
    name: str
    key: str
    target: str = ""
    optional: bool = False


class FileLayer(msgspec.Struct, frozen=True):
    """Values in a file or at an address that the object names. file: its last part."""

    place: str
    word: str
    file: str
    optional: bool = False


Layer = InlineLayer | SettingLayer | ReferenceLayer | FileLayer


class InstalledChart(msgspec.Struct, frozen=True):
    """A chart that an object installs.

    chart: its name, empty where the object refers to it. hints: other names that may say what it
    is. release, namespace: of the release. layers: later ones count. command: prints what counts,
    for `outscaler import -`. templated: a tool fills in `{{…}}` per cluster. defaults: below all
    layers.
    """

    document: Located
    chart: str
    hints: tuple[str, ...]
    release: str
    namespace: str
    layers: tuple[Layer, ...]
    command: str
    remarks: tuple[Remark, ...] = ()
    templated: bool = False
    defaults: Mapping[str, Any] = {}

    @property
    def title(self) -> str:
        """Return `HelmRelease flux-system/autoscaler`."""
        return title_of(self.document.content)


def title_of(content: Mapping[str, Any]) -> str:
    """Return kind, namespace and name of an object."""
    namespace, name = name_of(content)
    return f"{kind_of(content)[:60]} {namespace[:253]}/{name[:253]}"


def value_at(content: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of keys and indices, None where there is none."""
    for key in path:
        if isinstance(content, list):
            content = content[int(key)] if key.isdecimal() and int(key) < len(content) else None
        else:
            content = mapping(content).get(key)
    return content


def is_chart_object(content: Mapping[str, Any]) -> bool:
    """Return whether an object installs charts."""
    return _reader_of(content) is not None


def charts_with_autoscaler(documents: Sequence[Located]) -> list[InstalledChart]:
    """Return the charts of the input that have the autoscaler. Those that a tool has made of a
    template stand for it."""
    configs = {
        name_of(document.content): document
        for document in documents
        if _is(mapping(document.content), "HelmChartConfig", _CATTLE)
    }
    changed = {
        name_of(document.content)
        for document in documents
        if _is(mapping(document.content), "HelmChart", _CATTLE)
    }
    charts: list[InstalledChart] = []
    for document in documents:
        content = mapping(document.content)
        reader = _reader_of(content)
        if reader is _cattle_config and name_of(content) in changed:
            continue
        if reader is not None:
            charts += [chart for chart in reader(document, configs) if has_autoscaler(chart)]
    made = {kind_of(chart.document.content) for chart in charts if not chart.templated}
    return [
        chart
        for chart in charts
        if not (chart.templated and _MADE_BY.get(kind_of(chart.document.content)) in made)
    ]


_MADE_BY = {"HelmChartProxy": "HelmReleaseProxy", "ApplicationSet": "Application"}


def has_autoscaler(chart: InstalledChart) -> bool:
    """Return whether a chart is the autoscaler's, or has it as a sub-chart."""
    name = _base_name(chart.chart)
    if name:
        return _names_autoscaler(name) or _has_key(chart, (SUB_CHART,), _SUB_CHART_KEY)
    if any(_names_autoscaler(_base_name(hint)) for hint in chart.hints):
        return True
    return _has_key(chart, (SUB_CHART, *GROUP_KEYS), _OWN_KEY)


def _names_autoscaler(name: str) -> bool:
    return SUB_CHART in name or is_autoscaler(name)


def _base_name(chart: str) -> str:
    """Return the name of a chart without its folder, address and version."""
    base = chart.strip().rstrip("/").rsplit("/", 1)[-1][:500].lower()
    return _VERSION.sub("", base, count=1)


def _has_key(chart: InstalledChart, keys: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Return whether a layer has one of the keys at its top, without reading its text."""
    for layer in chart.layers:
        value = layer.value if isinstance(layer, InlineLayer) else None
        if isinstance(value, Mapping) and any(key in value for key in keys):
            return True
        if isinstance(value, str) and pattern.search(value):
            return True
    return False


# -- parts that kinds share ------------------------------------------------------------------------


def shell_name(name: str) -> str:
    """Return a name for a command, NAME for one that is no name of an object."""
    return name if _OBJECT_NAME.match(name) else "NAME"


def get_command(kind: str, namespace: str, name: str) -> str:
    """Return the command that prints an object."""
    return f"kubectl -n {shell_name(namespace)} get {kind.lower()} {shell_name(name)} -o yaml"


def _values_command(namespace: str, release: str) -> str:
    return f"helm -n {shell_name(namespace)} get values {shell_name(release)} -o yaml"


def _text(document: Located, *path: str) -> str:
    return text_of(value_at(document.content, path))


def _inlines(document: Located, *paths: Path) -> list[Layer]:
    """Return a layer for each path that has something."""
    return [
        InlineLayer(document, path)
        for path in paths
        if value_at(document.content, path) not in (None, "", {})
    ]


def _told(document: Located, path: Path, text: str, verdict: Verdict = Verdict.TOLD) -> Remark:
    return Remark(document.place(*path), shown_path(path), verdict, text)


# -- Flux ------------------------------------------------------------------------------------------

_REFERENCES = (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET))  # of Helm Operator
_DEFAULT_KEY = "values.yaml"


def _flux(document: Located, _: Mapping[Any, Located]) -> list[InstalledChart]:
    namespace, name = name_of(document.content)
    target = _text(document, "spec", "targetNamespace")
    release = _text(document, "spec", "releaseName") or (f"{target}-{name}" if target else name)
    chart = (
        _text(document, "spec", "chart", "spec", "chart")
        or _text(document, "spec", "chart", "name")
        or _text(document, "spec", "chart", "path")
    )
    layers = [
        _flux_reference(document, at, mapping(entry), namespace)
        for at, entry in enumerate(listed(value_at(document.content, ("spec", "valuesFrom"))))
    ]
    layers += _inlines(document, ("spec", "values"))
    remarks = []
    if value_at(document.content, ("spec", "suspend")) is True:
        text = "Flux does not apply it at present; what runs may be older"
        remarks.append(_told(document, ("spec", "suspend"), text))
    if value_at(document.content, ("spec", "postRenderers")):
        text = (
            "changes what the chart makes, and is not read; what runs: helm -n "
            f"{shell_name(target or namespace)} get manifest {shell_name(release)}"
        )
        remarks.append(_told(document, ("spec", "postRenderers"), text))
    return [
        InstalledChart(
            document,
            chart,
            (_text(document, "spec", "chartRef", "name"), release, name),
            release,
            target or namespace,
            tuple(layers),
            _values_command(target or namespace, release),
            tuple(remarks),
        )
    ]


def _flux_reference(document: Located, at: int, entry: Mapping[str, Any], namespace: str) -> Layer:
    path = ("spec", "valuesFrom", str(at))
    place, word = document.place(*path), f"spec.valuesFrom[{at}]"
    for field, kind in _REFERENCES:
        if field in entry:
            selector = mapping(entry[field])
            return ReferenceLayer(
                place,
                word,
                kind,
                text_of(selector.get("namespace")) or namespace,
                text_of(selector.get("name")),
                text_of(selector.get("key")) or _DEFAULT_KEY,
                optional=mapping(entry[field]).get("optional") is True,
            )
    name = text_of(entry.get("name"))
    if not name:
        source = next((key for key in entry if key.endswith("Ref")), "source")
        return FileLayer(place, f"{word}: {source[:60]}", "")
    return ReferenceLayer(
        place,
        word,
        SECRET if entry.get("kind") == SECRET else CONFIG_MAP,
        namespace,
        name,
        text_of(entry.get("valuesKey")) or _DEFAULT_KEY,
        text_of(entry.get("targetPath")),
        entry.get("optional") is True,
    )


# -- Argo CD ---------------------------------------------------------------------------------------


def _argo(document: Located, _: Mapping[Any, Located]) -> list[InstalledChart]:
    return _argo_sources(document, ("spec",), templated=False)


def _argo_set(document: Located, _: Mapping[Any, Located]) -> list[InstalledChart]:
    return _argo_sources(document, ("spec", "template", "spec"), templated=True)


def _argo_sources(document: Located, spec: Path, *, templated: bool) -> list[InstalledChart]:
    paths = [(*spec, "source")]
    sources = listed(value_at(document.content, (*spec, "sources")))
    paths += [(*spec, "sources", str(at)) for at in range(min(len(sources), _MOST_LAYERS))]
    charts = []
    for path in paths:
        source = mapping(value_at(document.content, path))
        if source.get("chart") or source.get("path") or source.get("helm"):
            charts.append(_argo_chart(document, spec, path, templated=templated))
    return charts


def _argo_chart(document: Located, spec: Path, path: Path, *, templated: bool) -> InstalledChart:
    _, name = name_of(document.content)
    helm = (*path, "helm")
    chart, folder = _text(document, *path, "chart"), _text(document, *path, "path")
    layers: list[Layer] = [
        FileLayer(
            document.place(*helm, "valueFiles", str(at)),
            f"{shown_path(helm)}.valueFiles[{at}]: {text_of(file)[:200]}",
            text_of(file).rsplit("/", 1)[-1],
            value_at(document.content, (*helm, "ignoreMissingValueFiles")) is True,
        )
        for at, file in enumerate(listed(value_at(document.content, (*helm, "valueFiles"))))
    ]
    remarks = []
    values_object = _inlines(document, (*helm, "valuesObject"))
    layers += values_object or _inlines(document, (*helm, "values"))
    if values_object and value_at(document.content, (*helm, "values")):
        text = "valuesObject counts"
        remarks.append(_told(document, (*helm, "values"), text, Verdict.NO_EFFECT))
    for at, entry in enumerate(listed(value_at(document.content, (*helm, "parameters")))):
        place = document.place(*helm, "parameters", str(at))
        setting = mapping(entry)
        as_text = setting.get("forceString") is True
        name_text, value = text_of(setting.get("name")), text_of(setting.get("value"))
        layers.append(SettingLayer(place, name_text, value, as_text))
    for at, entry in enumerate(listed(value_at(document.content, (*helm, "fileParameters")))):
        word = (
            f"{shown_path(helm)}.fileParameters[{at}]: {text_of(mapping(entry).get('name'))[:200]}"
        )
        layers.append(FileLayer(document.place(*helm, "fileParameters", str(at)), word, ""))
    release = _text(document, *helm, "releaseName") or name
    namespace = _text(document, *helm, "namespace") or _text(
        document, *spec, "destination", "namespace"
    )
    command = f"argocd app manifests {shell_name('' if templated else name)}"
    return InstalledChart(
        document,
        chart,
        (folder, release, name),
        release,
        namespace,
        tuple(layers),
        command,
        tuple(remarks),
        templated,
    )


# -- K3s and RKE2 ----------------------------------------------------------------------------------

_CATTLE = "helm.cattle.io"


def _cattle_layers(document: Located) -> list[Layer]:
    """Return the values of a HelmChart or of a HelmChartConfig."""
    namespace, _ = name_of(document.content)
    layers = _inlines(document, ("spec", "valuesContent"), ("spec", "values"))
    for at, entry in enumerate(listed(value_at(document.content, ("spec", "valuesSecrets")))):
        secret, word = mapping(entry), f"spec.valuesSecrets[{at}]"
        place = document.place("spec", "valuesSecrets", str(at))
        for key in listed(secret.get("keys"))[:_MOST_LAYERS] or [_DEFAULT_KEY]:
            name = text_of(secret.get("name"))
            layers.append(ReferenceLayer(place, word, SECRET, namespace, name, text_of(key)))
    return layers


def _cattle_chart(document: Located, configs: Mapping[Any, Located]) -> list[InstalledChart]:
    namespace, name = name_of(document.content)
    target = _text(document, "spec", "targetNamespace") or "default"
    layers = _cattle_layers(document)
    remarks = []
    config = configs.get((namespace, name))
    if config is not None:
        layers += _cattle_layers(config)
        text = f"its values count more than those of HelmChart {name}"
        remarks.append(Remark(config.place(), title_of(config.content), Verdict.READ, text))
    for key, value in mapping(value_at(document.content, ("spec", "set"))).items():
        place = document.place("spec", "set", str(key))
        layers.append(SettingLayer(place, str(key), text_of(value)))
    return [
        InstalledChart(
            document,
            _text(document, "spec", "chart"),
            (name,),
            name,
            target,
            tuple(layers),
            _values_command(target, name),
            tuple(remarks),
        )
    ]


def _cattle_config(document: Located, _: Mapping[Any, Located]) -> list[InstalledChart]:
    """Read a HelmChartConfig whose HelmChart is not in the input. With it, it is a layer of it."""
    namespace, name = name_of(document.content)
    text = (
        f"HelmChart {namespace}/{name}, whose values it changes, is not in the input: add it "
        f"({get_command('HelmChart', namespace, name)})"
    )
    remark = Remark(document.place(), title_of(document.content), Verdict.MISSING, text)
    command = _values_command(namespace, name)
    layers = tuple(_cattle_layers(document))
    return [InstalledChart(document, "", (name,), name, namespace, layers, command, (remark,))]


# -- Cluster API's add-on provider for Helm --------------------------------------------------------

_ADDONS = "addons.cluster.x-k8s.io"
_PROXY_LABEL = "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name"


def _proxy(document: Located, _: Mapping[Any, Located]) -> list[InstalledChart]:
    namespace, name = name_of(document.content)
    templated = kind_of(document.content) == "HelmChartProxy"
    release = _text(document, "spec", "releaseName") or name
    target = _text(document, "spec", "namespace") or "default"
    command = _values_command(target, release)
    if templated:
        command = (
            f"kubectl -n {shell_name(namespace)} get helmreleaseproxies -l "
            f"{_PROXY_LABEL}={shell_name(name)} -o yaml"
        )
    return [
        InstalledChart(
            document,
            _text(document, "spec", "chartName"),
            (release, name),
            release,
            target,
            tuple(_inlines(document, ("spec", "valuesTemplate" if templated else "values"))),
            command,
            templated=templated,
        )
    ]


# -- EKS Anywhere ----------------------------------------------------------------------------------


def _package(document: Located, _: Mapping[Any, Located]) -> list[InstalledChart]:
    namespace, name = name_of(document.content)
    target = _text(document, "spec", "targetNamespace") or namespace
    return [
        InstalledChart(
            document,
            _text(document, "spec", "packageName").partition(".")[0],
            (name,),
            name,
            target,
            tuple(_inlines(document, ("spec", "config"))),
            _values_command(target, name),
            defaults={"cloudProvider": "clusterapi"},  # of the package
        )
    ]


Reader = Callable[[Located, Mapping[Any, Located]], list[InstalledChart]]

_READERS: tuple[tuple[str, str, Reader], ...] = (
    ("HelmRelease", "helm.toolkit.fluxcd.io", _flux),
    ("HelmRelease", "helm.fluxcd.io", _flux),
    ("Application", "argoproj.io", _argo),
    ("ApplicationSet", "argoproj.io", _argo_set),
    ("HelmChart", _CATTLE, _cattle_chart),
    ("HelmChart", "k3s.cattle.io", _cattle_chart),
    ("HelmChartConfig", _CATTLE, _cattle_config),
    ("HelmChartProxy", _ADDONS, _proxy),
    ("HelmReleaseProxy", _ADDONS, _proxy),
    ("Package", "packages.eks.amazonaws.com", _package),
)


def _is(content: Mapping[str, Any], kind: str, group: str) -> bool:
    return kind_of(content) == kind and api_group_of(content) == group


def _reader_of(content: Mapping[str, Any]) -> Reader | None:
    readers = (reader for kind, group, reader in _READERS if _is(content, kind, group))
    return next(readers, None)
