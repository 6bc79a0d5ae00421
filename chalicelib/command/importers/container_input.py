"""Reads environment variables and mounted files of a container, as the kubelet provides them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from chalicelib.command.importers.autoscaler_input import FileMount, Remark, Variable, VariableOrigin
from chalicelib.command.importers.input_objects import CONFIG_MAP, SECRET, InputObjects, listed, mapping, text_of
from chalicelib.command.importers.located_documents import Located
from chalicelib.command.importers.public_values import is_secret_name
from chalicelib.command.importers.report import Verdict
from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote

ENV = "--env"
_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]{0,252})\))")
_MOST_REPLACED = 1_000_000  # characters of values in one container: a variable may hold another one many times
_MOST_SOURCES, _MOST_VARIABLES, _MOST_MOUNTS, _MOST_FILES = 100, 5_000, 200, 1_000
_ORIGINS = {SECRET: VariableOrigin.OF_SECRETS, CONFIG_MAP: VariableOrigin.OF_CONFIG_MAP}
_REFERENCES = {"secretKeyRef": SECRET, "configMapKeyRef": CONFIG_MAP}
_SOURCES = {"secretRef": SECRET, "configMapRef": CONFIG_MAP}
_OBJECT_NAMES = ((SECRET, "secret", "secretName"), (CONFIG_MAP, "configMap", "name"))


class Environment:
    """Variables of one container by name, with the mistakes of their use."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.variables: dict[str, Variable] = {}
        self.remarks: list[Remark] = []
        self.problems: list[BadInput] = []
        self._left = _MOST_REPLACED

    def add(self, variable: Variable) -> None:
        """Add a variable, or replace one of the same name. A value of --env counts; a secret one is left out."""
        value = self.given.get(variable.name, variable.value)
        self.variables.pop(variable.name, None)
        self.variables[variable.name] = Variable(
            variable.place,
            variable.name,
            None if is_secret_name(variable.name) else value,
            variable.origin,
            variable.object,
            variable.key,
        )

    def add_given(self) -> None:
        """Add variables of --env that the container does not have."""
        for name, value in self.given.items():
            if name not in self.variables:
                self.add(Variable(ENV, name, value))

    def known(self) -> dict[str, str]:
        """Return the values that are known."""
        return {name: each.value for name, each in self.variables.items() if each.value is not None}

    def expanded(self, text: str, place: str) -> str:
        """Return a text with `$(NAME)` replaced as the kubelet does; `$$` is a literal `$`, unknown names stay."""

        def value_of(found: re.Match[str]) -> str:
            if not found[1]:
                return "$"
            variable = self.variables.get(found[1])
            if variable is None:
                return found[0] if is_secret_name(found[1]) else self.given.get(found[1], found[0])
            if variable.value is None:
                source = f"comes from {variable.object}" if variable.object else "has no value that is read"
                self.problems.append(
                    BadInput(place, f"$({found[1]}) {source}", f"give --env {found[1]}=VALUE if it is not secret")
                )
                return found[0]
            self._left -= len(variable.value)
            return variable.value if self._left > 0 else found[0]

        return _REFERENCE.sub(value_of, text)


def read_environment(
    located: Located,
    path: tuple[str, ...],
    container: Mapping[str, Any],
    namespace: str,
    objects: InputObjects,
    given: Mapping[str, str],
) -> Environment:
    """Read envFrom, then env, whose variables count more. path: of the container in the document."""
    found = Environment(given)
    for at, source in enumerate(listed(container.get("envFrom"))[:_MOST_SOURCES]):
        place = located.place(*path, "envFrom", str(at))
        for key, kind in _SOURCES.items():
            name = text_of(mapping(mapping(source).get(key)).get("name"))
            if name:
                prefix = text_of(mapping(source).get("prefix"))
                _add_all(found, place, kind, f"{namespace}/{name}", prefix, objects)
    for at, each in enumerate(listed(container.get("env"))[:_MOST_VARIABLES]):
        variable = _variable(located.place(*path, "env", str(at)), mapping(each), namespace, objects, found)
        if variable is not None:
            found.add(variable)
    found.add_given()
    return found


def _add_all(environment: Environment, place: str, kind: str, name: str, prefix: str, objects: InputObjects) -> None:
    if not objects.has(kind, name):
        text = f"{kind} {name} is not in the input; its variables are unknown: add it, or give --env NAME=VALUE"
        environment.remarks.append(Remark(place, "envFrom", Verdict.TOLD, text))
    for key in objects.keys(kind, name):
        value = objects.value(kind, name, key)
        environment.add(Variable(place, prefix + key, value, _ORIGINS[kind], name, key))


def _variable(
    place: str, each: Mapping[str, Any], namespace: str, objects: InputObjects, environment: Environment
) -> Variable | None:
    name = text_of(each.get("name"))
    if not name:
        return None
    source = mapping(each.get("valueFrom"))
    for reference, kind in _REFERENCES.items():
        if reference in source:
            at = mapping(source[reference])
            where, key = f"{namespace}/{text_of(at.get('name'))}", text_of(at.get("key"))
            return Variable(place, name, objects.value(kind, where, key), _ORIGINS[kind], where, key)
    if source:
        field = text_of(mapping(source.get("fieldRef")).get("fieldPath"))
        return Variable(place, name, namespace if field == "metadata.namespace" else None, VariableOrigin.FIELD)
    before = len(environment.problems)
    expanded = environment.expanded(text_of(each.get("value")), place)
    unknown = len(environment.problems) > before
    del environment.problems[before:]  # a mistake only where a flag needs the value
    return Variable(place, name, None if unknown else expanded)


# -- files -----------------------------------------------------------------------------------------------------------


def read_mounts(
    located: Located,
    path: tuple[str, ...],
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    namespace: str,
    objects: InputObjects,
) -> tuple[list[FileMount], list[Remark]]:
    """Return the files of Secrets, ConfigMaps and tokens, and a remark for each other mount."""
    volumes = {text_of(mapping(each).get("name")): mapping(each) for each in listed(pod.get("volumes"))}
    mounts: list[FileMount] = []
    remarks: list[Remark] = []
    for at, each in enumerate(listed(container.get("volumeMounts"))[:_MOST_MOUNTS]):
        place = located.place(*path, "volumeMounts", str(at))
        mount = mapping(each)
        folder, name = text_of(mount.get("mountPath")), text_of(mount.get("name"))
        files = list(itertools.islice(_files(volumes.get(name, {}), namespace, objects), _MOST_FILES - len(mounts)))
        sub = text_of(mount.get("subPath"))
        for file in files:
            if sub and file.path != sub:
                continue
            inside = folder if sub or not file.path else f"{folder.rstrip('/')}/{file.path}"
            mounts.append(FileMount(place, inside, file.object, file.key, file.audience, file.text))
        if not files:
            remarks.append(
                Remark(place, f"mount {quote(folder)}", Verdict.NO_EFFECT, "not of a Secret, ConfigMap or token")
            )
    return mounts, remarks


def _files(volume: Mapping[str, Any], namespace: str, objects: InputObjects) -> Iterator[FileMount]:
    for kind, field, name in _OBJECT_NAMES:
        if field in volume:
            yield from _keys(kind, mapping(volume[field]), name, namespace, objects)
    for each in listed(mapping(volume.get("projected")).get("sources")):
        source = mapping(each)
        token = mapping(source.get("serviceAccountToken"))
        if token:
            yield FileMount("", text_of(token.get("path")), audience=text_of(token.get("audience")))
        for kind, field, _ in _OBJECT_NAMES:
            if field in source:
                yield from _keys(kind, mapping(source[field]), "name", namespace, objects)


def _keys(
    kind: str, source: Mapping[str, Any], name: str, namespace: str, objects: InputObjects
) -> Iterator[FileMount]:
    where = f"{namespace}/{text_of(source.get(name))}"
    items = [mapping(each) for each in listed(source.get("items"))]
    paths = {text_of(each.get("key")): text_of(each.get("path")) for each in items}
    if not paths:
        paths = {key: key for key in objects.keys(kind, where)}
    if not paths:
        yield FileMount("", "", where)
    for key, path in paths.items():
        yield FileMount("", path, where, key, text=objects.file(kind, where, key))
