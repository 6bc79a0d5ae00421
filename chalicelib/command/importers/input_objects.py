"""The Secrets and ConfigMaps of an input, found by the namespace and name that a container refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chalicelib.command.importers.located_documents import Located
from chalicelib.command.importers.public_values import public_config, secret_text, secret_value

SECRET, CONFIG_MAP = "Secret", "ConfigMap"
_MOST_KEYS = 1_000
DEFAULT_NAMESPACE = "kube-system"


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """Return the value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a scalar as text: a manifest may have numbers without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def kind_of(document: Mapping[str, Any]) -> str:
    """Return the kind, empty where there is none."""
    return text_of(document.get("kind"))


def name_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return (namespace, name); the namespace is that of Cluster Autoscaler's own manifests where none is written."""
    metadata = mapping(document.get("metadata"))
    return text_of(metadata.get("namespace")) or DEFAULT_NAMESPACE, text_of(metadata.get("name"))


class InputObjects:
    """Values by kind, namespace/name and key. Values of Secrets are public ones only."""

    def __init__(self, documents: Iterable[Located]) -> None:
        self._found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for document in documents:
            content = mapping(document.content)
            if kind_of(content) in (SECRET, CONFIG_MAP):
                self._found.setdefault((kind_of(content), "/".join(name_of(content))), content)

    def has(self, kind: str, name: str) -> bool:
        """Return whether the object `namespace/name` is in the input."""
        return (kind, name) in self._found

    def keys(self, kind: str, name: str) -> list[str]:
        """Return the keys of the object."""
        found = self._found.get((kind, name), {})
        parts = ("data", "stringData") if kind == SECRET else ("data", "binaryData")
        return list(dict.fromkeys(str(key) for part in parts for key in mapping(found.get(part))))[:_MOST_KEYS]

    def value(self, kind: str, name: str, key: str) -> str | None:
        """Return the value of a key; of a Secret only if the key is public."""
        found = self._found.get((kind, name))
        if found is None:
            return None
        if kind == SECRET:
            return secret_value(found, key)
        value = mapping(found.get("data")).get(key)
        return value if isinstance(value, str) else None

    def file(self, kind: str, name: str, key: str) -> str | None:
        """Return the text of a key mounted as a file; of a Secret only the public settings of a cloud-config."""
        found = self._found.get((kind, name))
        if found is None or kind == CONFIG_MAP:
            return self.value(kind, name, key)
        text = secret_text(found, key)
        return public_config(text) if text is not None else None
