"""Reads the variables and files that values of the Helm chart give to the container.

Their values stay in the cluster. Their names say which secrets the policy needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.command.importers.autoscaler_input import VariableOrigin
from chalicelib.command.importers.chart_values import CREDENTIALS
from chalicelib.command.importers.input_rows import InputRows
from chalicelib.command.importers.report import Verdict

_KEYS = {"EXOSCALE_API_KEY": "api-key", "EXOSCALE_API_SECRET": "api-secret", "EXOSCALE_ZONE": "api-zone"}
_REFERENCES = (
    ("extraEnvConfigMaps", VariableOrigin.OF_CONFIG_MAP),
    ("extraEnvSecrets", VariableOrigin.OF_SECRETS),
)


def read_environment(values: Mapping[str, Any], rows: InputRows, namespace: str, provider: str) -> None:
    """Add the variables and mounts of the values."""
    for name, value in rows.entries(("extraEnv",), values.get("extraEnv")).items():
        path = ("extraEnv", name)
        rows.variable(path, name, rows.text(path, value), VariableOrigin.LITERAL, "", "")
    for section, origin in _REFERENCES:
        for name, reference in rows.entries((section,), values.get(section)).items():
            path = (section, name)
            entry = rows.entries(path, reference)
            of = rows.text((*path, "name"), entry.get("name")) or ""
            key = rows.text((*path, "key"), entry.get("key")) or name
            rows.variable(path, name, None, origin, f"{namespace}/{of}", key)
    _whole_objects(values, rows, namespace, provider)
    _chart_secret(values, rows, namespace, provider)
    _secret_volumes(values, rows, namespace)
    _volumes(values, rows, namespace)


def _whole_objects(values: Mapping[str, Any], rows: InputRows, namespace: str, provider: str) -> None:
    path = ("envFromSecret",)
    name = rows.text(path, values.get("envFromSecret") or None)
    if name:
        text = f"variables of Secret {namespace}/{name}, whose names are not in the values"
        rows.remark(path, Verdict.TOLD, text)
        known = {each.name for each in rows.variables}
        for variable in CREDENTIALS.get(provider, ()):
            if variable not in known:
                rows.variable(path, variable, None, VariableOrigin.OF_SECRETS, f"{namespace}/{name}", variable)
    path = ("envFromConfigMap",)
    name = rows.text(path, values.get("envFromConfigMap") or None)
    if name:
        text = f"variables of ConfigMap {namespace}/{name} are not in the values: render them with helm template"
        rows.remark(path, Verdict.TOLD, text)


def _chart_secret(values: Mapping[str, Any], rows: InputRows, namespace: str, provider: str) -> None:
    """Add the variables that the chart takes from its own Secret, or from the one that replaces it."""
    path = ("secretKeyRefNameOverride",)
    override = rows.text(path, values.get("secretKeyRefNameOverride") or None)
    if provider != "exoscale":
        if override:
            rows.remark(path, Verdict.NO_EFFECT, f"the chart does not use it for {provider or 'this provider'}")
        return
    name = override or rows.text(("fullnameOverride",), values.get("fullnameOverride") or None)
    if override:
        rows.remark(path, Verdict.TO_STORE, "the Secret with api-key, api-secret and api-zone")
    elif not name:
        text = "RELEASE-exoscale-cluster-autoscaler has api-key, api-secret and api-zone"
        rows.remark((), Verdict.TOLD, text, word="Secret of the chart")
    known = {each.name for each in rows.variables}
    for variable, key in _KEYS.items():
        if variable not in known:
            of = f"{namespace}/{name}" if name else ""
            rows.variable(path, variable, None, VariableOrigin.OF_SECRETS, of, key)


def _secret_volumes(values: Mapping[str, Any], rows: InputRows, namespace: str) -> None:
    section = "extraVolumeSecrets"
    for key, volume in rows.entries((section,), values.get(section)).items():
        path = (section, key)
        entry = rows.entries(path, volume)
        folder = rows.text((*path, "mountPath"), entry.get("mountPath"))
        name = rows.text((*path, "name"), entry.get("name")) or key
        if folder:
            rows.mount(path, folder, f"{namespace}/{name}")
        rows.remark(path, Verdict.NO_EFFECT, "files of the container; a flag that names one decides what is stored")


def _volumes(values: Mapping[str, Any], rows: InputRows, namespace: str) -> None:
    objects: dict[str, str] = {}
    audiences: dict[str, str] = {}
    for at, volume in enumerate(rows.items(("extraVolumes",), values.get("extraVolumes"))):
        path = ("extraVolumes", str(at))
        entry = rows.entries(path, volume)
        name = str(entry.get("name", ""))[:253]
        secret, config = _part(entry, "secret"), _part(entry, "configMap")
        of = secret.get("secretName") or config.get("name")
        if isinstance(of, str):
            objects[name] = f"{namespace}/{of}"
        sources = _part(entry, "projected").get("sources")
        for source in sources[:20] if isinstance(sources, list) else ():
            audience = _part(source, "serviceAccountToken").get("audience")
            if isinstance(audience, str):
                audiences[name] = audience[:253]
        rows.remark(path, Verdict.NO_EFFECT, "files of the container; a flag that names one decides what is stored")
    for at, mounted in enumerate(rows.items(("extraVolumeMounts",), values.get("extraVolumeMounts"))):
        path = ("extraVolumeMounts", str(at))
        entry = rows.entries(path, mounted)
        name = str(entry.get("name", ""))[:253]
        folder = rows.text((*path, "mountPath"), entry.get("mountPath"))
        if folder and (name in objects or name in audiences):
            rows.mount(path, folder, objects.get(name, ""), audience=audiences.get(name, ""))
        rows.remark(path, Verdict.NO_EFFECT, "files of the container")


def _part(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}
