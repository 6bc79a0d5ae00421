"""Names the autoscaler in objects that an import does not read, with the command that takes it out.

A reader of each tool's objects is never complete. An object that only mentions the autoscaler is
therefore refused with its field, and not as a file without settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.cli.migrate.documents import (
    Located,
    Path,
    api_group_of,
    kind_of,
    mapping,
    name_of,
    shown_path,
)
from chalicelib.cli.migrate.helm_values import SUB_CHART
from chalicelib.cli.migrate.installed_charts import shell_name, title_of
from chalicelib.model.errors import BadInput

_OPENSHIFT = "autoscaling.openshift.io"
_RELEASE_TYPE = "helm.sh/release.v1"
_OF_A_MANIFEST = re.compile(
    r"^kind:[ \t]*(?:Deployment|StatefulSet|DaemonSet|Pod)\b|--cloud-provider|^cloudProvider:",
    re.MULTILINE,
)
_MOST_VISITED, _LONGEST_TEXT = 100_000, 500
_RENDERED = "give the values that count (helm -n NAMESPACE get values RELEASE -o yaml) or what runs"
_DEPLOYMENTS = "(kubectl -n kube-system get deploy,cm,secret -o yaml)"


def is_openshift(content: Mapping[str, Any]) -> bool:
    """Return whether an object is one of OpenShift's autoscalers."""
    return api_group_of(content) == _OPENSHIFT


def refuse_other_forms(documents: Sequence[Located]) -> None:
    """Raise BadInput for the first object that has or mentions the autoscaler, of an input in which
    no configuration could be read."""
    for document in documents:
        content = mapping(document.content)
        kind = kind_of(content)
        if is_openshift(content):
            raise BadInput(
                document.place(),
                f"{kind[:60]} of OpenShift is not read",
                "give the Deployment that its operator makes: kubectl -n openshift-machine-api "
                "get deploy -o yaml",
            )
        if kind in ("Secret", "ConfigMap"):
            _refuse_data(document, content)
        elif kind:
            _refuse_mention(document, content)


def _refuse_data(document: Located, content: Mapping[str, Any]) -> None:
    """Refuse a release of Helm, and an object whose data are the autoscaler's manifest."""
    namespace, name = (shell_name(part) for part in name_of(content))
    labels = mapping(mapping(content.get("metadata")).get("labels"))
    release = str(labels.get("name") or name)[:253]
    if content.get("type") == _RELEASE_TYPE and SUB_CHART in release:
        problem = f"{title_of(content)} is a release of Helm, which is not read"
        command = f"helm -n {namespace} get values {shell_name(release)} -o yaml"
        raise BadInput(document.place(), problem, f"give its values: {command}")
    for key, text in mapping(content.get("data")).items():
        if isinstance(text, str) and SUB_CHART in text and _OF_A_MANIFEST.search(text):
            path = str(key).replace(".", "\\.")
            command = (
                f"kubectl -n {namespace} get {kind_of(content).lower()} {name} -o "
                f"jsonpath='{{.data.{path}}}'"
            )
            if not re.fullmatch(r"[A-Za-z0-9._\\-]+", path):
                command = f"kubectl -n {namespace} get {kind_of(content).lower()} {name} -o yaml"
            raise BadInput(
                document.place("data", str(key)),
                f"{title_of(content)} has the autoscaler in {shown_path(('data', str(key)))}",
                f"take it out: {command} | outscaler import -",
            )


def _refuse_mention(document: Located, content: Mapping[str, Any]) -> None:
    mentions = (path for path, text in _texts(content) if SUB_CHART in text.lower())
    kind = kind_of(content)
    path = next((path for path in mentions if _is_of_a_chart(kind, path)), None)
    if path is None:
        return
    shown = shown_path(path)
    raise BadInput(
        document.place(*path),
        f"{title_of(content)} names the autoscaler in {shown[:300]}, and is not read",
        f"{_RENDERED} {_DEPLOYMENTS}",
    )


def _is_of_a_chart(kind: str, path: Path) -> bool:
    """Return whether a field says which chart an object installs, by the words in its name."""
    words = " ".join((kind, *path)).lower()
    return path[0] != "metadata" and ("chart" in words or "helm" in words)


def _texts(content: Any) -> Iterator[tuple[Path, str]]:
    """Return the texts of an object that are short enough for a name, in order."""
    pending: list[tuple[Path, Any]] = [((), content)]
    visited = 0
    while pending and visited < _MOST_VISITED:
        visited += 1
        path, value = pending.pop()
        if isinstance(value, str) and len(value) <= _LONGEST_TEXT:
            yield path, value
        elif isinstance(value, Mapping):
            entries = list(value.items())
            pending += [((*path, str(key)), item) for key, item in reversed(entries)]
        elif isinstance(value, list):
            numbered = list(enumerate(value))
            pending += [((*path, str(at)), item) for at, item in reversed(numbered)]
