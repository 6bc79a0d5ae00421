"""Reads the autoscaler's configuration out of an object that installs its chart: lays the values
over each other, and names what the input does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib.cli.migrate.autoscaler_input import AutoscalerInput, Remark
from chalicelib.cli.migrate.chart_values import (
    ChartValues,
    OpenedTemplate,
    TemplatedPart,
    opened_template,
    typed,
    values_of_text,
    without_templates,
)
from chalicelib.cli.migrate.documents import (
    Located,
    api_group_of,
    kind_of,
    mapping,
    name_of,
    shown_path,
    text_of,
)
from chalicelib.cli.migrate.helm_values import SUB_CHART, read_helm_values
from chalicelib.cli.migrate.installed_charts import (
    GROUP_KEYS,
    SECRET,
    FileLayer,
    InlineLayer,
    InstalledChart,
    ReferenceLayer,
    SettingLayer,
    charts_with_autoscaler,
    get_command,
)
from chalicelib.cli.migrate.public_values import secret_text
from chalicelib.cli.migrate.report import MOST_PROBLEMS, Verdict, shortened
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote

PLACEHOLDER = "REPLACE-ME"
"""The name in discovery where a template gives it: no cluster and no namespace has it, so that a
policy never scales the groups of others."""
_NO_LABEL = {"outscaler.dev/replace-me": PLACEHOLDER}
_MOST_NAMED = 10
_MOST_LAYERS = 500
_CLUSTER_GROUP = "cluster.x-k8s.io"
_LONGEST_VALUES = 1_000_000  # characters of one text


def read_chart(
    documents: Sequence[Located],
    workload: str,
    values: Mapping[str, str],
    image_version: str,
) -> AutoscalerInput | None:
    """Return the configuration of the only, or the wanted, chart of the autoscaler; None where no
    object of the input installs it.

    workload: `NAMESPACE/NAME` of the object or of its release. values: of --env, which give the
    output of templates, too. Raises InputErrors with what the input lacks if it is not enough.
    """
    charts = charts_with_autoscaler(documents)
    if not charts:
        return None
    chart = _chosen(charts, workload)
    opener = _Opener(chart, documents, values)
    content = opener.opened()
    remarks = (*chart.remarks, *opener.remarks)
    if _deploys_nothing(content) and not opener.problems:
        opener.problems += [*opener.lacking(remarks), opener.without_groups()]
    if opener.problems:
        raise InputErrors(tuple(opener.problems[:MOST_PROBLEMS]))
    try:
        autoscaler = read_helm_values(
            chart.document.place(),
            content.content,
            content.places,
            namespace=chart.namespace,
            image_version=image_version,
            kind=chart.title,
        )
    except InputErrors as error:
        problems = (*opener.lacking(remarks), *error.problems)
        raise InputErrors(problems[:MOST_PROBLEMS]) from None
    return msgspec.structs.replace(
        autoscaler, remarks=(*remarks, *autoscaler.remarks), release=chart.release
    )


def _deploys_nothing(values: ChartValues) -> bool:
    """Return whether the values name no groups, so that more of them must be somewhere else."""
    return not any(values.content.get(key) for key in (*GROUP_KEYS, SUB_CHART))


def _chosen(charts: Sequence[InstalledChart], workload: str) -> InstalledChart:
    wanted = [chart for chart in charts if not workload or workload in _names(chart)]
    if len(wanted) == 1:
        return wanted[0]
    shown = (wanted or charts)[:_MOST_NAMED]
    names = ", ".join(dict.fromkeys(chart.title for chart in shown))
    place = shown[0].document.place()
    if not wanted:
        problem = f"no object that installs an autoscaler is {quote(f'--workload {workload}')}"
        raise BadInput(place, problem, f"choose with --workload among {names}")
    problem = f"{len(wanted)} objects install an autoscaler: {names}"
    raise BadInput(place, problem, "choose with --workload NAMESPACE/NAME, or give one of them")


def _names(chart: InstalledChart) -> tuple[str, ...]:
    namespace, name = name_of(chart.document.content)
    own, release = f"{namespace}/{name}", f"{chart.namespace}/{chart.release}"
    return (own, release, name, chart.release)


class _Opener:
    """Opens the layers of one chart, with remarks on them and all mistakes."""

    def __init__(
        self, chart: InstalledChart, documents: Sequence[Located], values: Mapping[str, str]
    ) -> None:
        self._chart, self._documents = chart, documents
        self._given = {**_outputs(documents), **values} if chart.templated else {}
        self.remarks: list[Remark] = []
        self.problems: list[BadInput] = []

    def opened(self) -> ChartValues:
        """Return all values."""
        values = ChartValues(self._chart.defaults)
        if len(self._chart.layers) > _MOST_LAYERS:
            place = self._chart.document.place()
            problem = f"{self._chart.title} has more than {_MOST_LAYERS} parts with values"
            self.problems.append(BadInput(place, problem, self._remedy()))
        for layer in self._chart.layers[:_MOST_LAYERS]:
            try:
                values = self._laid(values, layer)
            except BadInput as error:
                self.problems.append(error)
        return values

    def _laid(self, values: ChartValues, layer: object) -> ChartValues:
        """Return values below those of one layer. Raises BadInput."""
        match layer:
            case InlineLayer():
                return values.under(self._inline(layer))
            case SettingLayer():
                return self._setting(values, layer)
            case ReferenceLayer():
                return self._reference(values, layer)
            case FileLayer():
                return values.under(self._other_file(layer))
        raise AssertionError(layer)

    def lacking(self, remarks: Sequence[Remark]) -> list[BadInput]:
        """Return what the input does not have as mistakes."""
        missing = [remark for remark in remarks if remark.verdict is Verdict.MISSING]
        return [
            BadInput(f"{remark.place}: {remark.word}"[:300], remark.text, "") for remark in missing
        ]

    def without_groups(self) -> BadInput:
        """Return the mistake that the values name no groups."""
        problem = f"{self._chart.title}: its values have none of {', '.join(GROUP_KEYS)}"
        return BadInput(self._chart.document.place(), problem, self._remedy())

    def _remedy(self) -> str:
        return f"give what counts: {self._chart.command} | outscaler import -"

    # -- layers ------------------------------------------------------------------------------------

    def _inline(self, layer: InlineLayer) -> ChartValues:
        word = shown_path(layer.path)
        if isinstance(layer.value, Mapping):
            keyed = {str(key): value for key, value in layer.value.items()}
            values = ChartValues(keyed, layer.document.places(*layer.path))
            return self._literal(values, OpenedTemplate())
        if not isinstance(layer.value, str):
            place = layer.document.place(*layer.path)
            raise BadInput(f"{place}: {word}", "is neither an object nor text", self._remedy())
        return self._of_text(
            layer.value, word, lambda line: layer.document.line_place(layer.path, line)
        )

    def _of_text(self, text: str, word: str, place_of: Callable[[int], str]) -> ChartValues:
        if len(text) > _LONGEST_VALUES:
            problem = f"has more than {_LONGEST_VALUES} characters"
            raise BadInput(f"{place_of(1)}: {word}", problem, self._remedy())
        template = OpenedTemplate(text)
        if self._chart.templated:
            template = opened_template(text, self._given)
        for line, action in template.conditions[:MOST_PROBLEMS]:
            said = f"`{{{{ {action} }}}}` gives or decides on lines, which are left out"
            self._missing(place_of(line), f"{word}, line {line}", f"{said}: {self._remedy()}")
        return self._literal(values_of_text(template.text, place_of, word), template)

    def _literal(self, values: ChartValues, template: OpenedTemplate) -> ChartValues:
        """Return the values without those of a template, which are named."""
        if not self._chart.templated:
            return values
        literal, templated = without_templates(values, template)
        for part in templated[:MOST_PROBLEMS]:
            literal = self._with_placeholder(literal, part)
        return literal

    def _with_placeholder(self, values: ChartValues, part: TemplatedPart) -> ChartValues:
        """Name a value of a template. Where it says what is discovered, return values that discover
        nothing."""
        action = part.text if "{{" in part.text else f"{{{{ {part.text} }}}}"
        word = shown_path(part.path)
        name = part.text.strip("{} -")
        env = "" if " " in name else f"give --env {name}=VALUE, or "
        remedy = f"{env}{self._remedy()}"
        if part.path == ("cloudProvider",):
            problem = f"is the template {quote(action)}"
            self.problems.append(BadInput(f"{part.place}: {word}", problem, remedy))
        discovers = part.path[:1] == ("autoDiscovery",) and len(part.path) > 1
        stands = f", for which {PLACEHOLDER} stands" if discovers else ", and is left out"
        self._missing(part.place, word, f"is the template `{action}`{stands}: {remedy}")
        if not discovers:
            return values
        discovery = dict(mapping(values.content.get("autoDiscovery")))
        if part.path[1] == "labels":
            discovery["labels"] = [_NO_LABEL]
        elif len(part.path) == 2:
            discovery[part.path[1]] = PLACEHOLDER
        content = {**values.content, "autoDiscovery": discovery}
        return msgspec.structs.replace(values, content=content)

    def _setting(self, values: ChartValues, layer: SettingLayer) -> ChartValues:
        if self._chart.templated and "{{" in layer.name + layer.value:
            path = tuple(layer.name.split("."))
            return self._with_placeholder(values, TemplatedPart(path, layer.place, layer.value))
        value = layer.value if layer.as_text else typed(layer.value)
        return values.with_setting(layer.name, value, layer.place)

    def _reference(self, values: ChartValues, layer: ReferenceLayer) -> ChartValues:
        title = f"{layer.kind} {layer.namespace}/{layer.name}"
        word = f"{layer.word}: {title}"
        document = self._object(layer)
        text = _data_text(document, layer) if document is not None else None
        if document is None or text is None:
            absent = f"its key {quote(layer.key)} " if document is not None else ""
            command = get_command(layer.kind, layer.namespace, layer.name)
            said = f"{absent}is not in the input: add it ({command}), or {self._remedy()}"
            self._missing(layer.place, word, said, optional=layer.optional)
            return values
        self.remarks.append(Remark(layer.place, word, Verdict.READ, "its values count"))
        if layer.target:
            return values.with_setting(layer.target, typed(text.strip()), layer.place)
        path = ("data", layer.key)
        return values.under(
            self._of_text(text, title, lambda line: document.line_place(path, line))
        )

    def _object(self, layer: ReferenceLayer) -> Located | None:
        """Return the object that is referred to. One without a namespace may be in any."""
        for document in self._documents:
            content = mapping(document.content)
            metadata = mapping(content.get("metadata"))
            namespace = text_of(metadata.get("namespace")) or layer.namespace
            if (kind_of(content), namespace, text_of(metadata.get("name"))) == (
                layer.kind,
                layer.namespace,
                layer.name,
            ):
                return document
        return None

    def _other_file(self, layer: FileLayer) -> ChartValues:
        for document in self._documents:
            content = mapping(document.content)
            same_name = document.file.rsplit("/", 1)[-1] == layer.file
            if same_name and content and "kind" not in content:
                remark = Remark(layer.place, layer.word, Verdict.READ, f"is {document.file}")
                self.remarks.append(remark)
                keyed = {str(key): value for key, value in content.items()}
                return ChartValues(keyed, document.places())
        absent = "is not in the input"
        absent += (
            f": add {layer.file}, or {self._remedy()}" if layer.file else f": {self._remedy()}"
        )
        self._missing(layer.place, layer.word, absent, optional=layer.optional)
        return ChartValues()

    def _missing(self, place: str, word: str, text: str, *, optional: bool = False) -> None:
        """Add a remark on what the input does not have."""
        verdict = Verdict.TOLD if optional else Verdict.MISSING
        self.remarks.append(Remark(place, shortened(word), verdict, text))


def _data_text(document: Located, layer: ReferenceLayer) -> str | None:
    """Return the text of a key of a Secret or ConfigMap."""
    content = mapping(document.content)
    if layer.kind == SECRET:
        return secret_text(content, layer.key, _LONGEST_VALUES)
    text = mapping(content.get("data")).get(layer.key)
    return text if isinstance(text, str) else None


def _outputs(documents: Sequence[Located]) -> dict[str, str]:
    """Return the outputs of templates that the input shows: those of the only Cluster in it."""
    clusters = [
        mapping(document.content)
        for document in documents
        if kind_of(mapping(document.content)) == "Cluster"
        and api_group_of(mapping(document.content)) == _CLUSTER_GROUP
    ]
    if len(clusters) != 1:
        return {}
    metadata = mapping(clusters[0].get("metadata"))
    outputs = {
        f".Cluster.metadata.{key}": text_of(metadata.get(key)) for key in ("name", "namespace")
    }
    for section in ("labels", "annotations"):
        for key, value in list(mapping(metadata.get(section)).items())[:_MOST_LAYERS]:
            outputs[f".Cluster.metadata.{section}.{key}"] = text_of(value)
            outputs[f'index .Cluster.metadata.{section} "{key}"'] = text_of(value)
    return {action: output for action, output in outputs.items() if output}
