"""Finds the kubeconfig that kubectl would use, and merges several files of KUBECONFIG as kubectl does.

The official `kubernetes` package merges files, too, but its last file sets the current context where kubectl's first
does, and its loader has no limit of size or depth.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.net.bounded_files import text as file_text

_SECTIONS = ("clusters", "contexts", "users")
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}
"""Keys with a path that is relative to its own file."""


def kubeconfig_of(environment: Mapping[str, str]) -> Path:
    """Return the path that kubectl would use: all of KUBECONFIG, otherwise ~/.kube/config. Several files are one path
    with separators, which read_kubeconfig understands. Raises BadInput where no file exists."""
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    there = [part for part in named if Path(part).expanduser().exists()]
    if there:
        return Path(os.pathsep.join(there))
    path = Path(named[0]) if named else Path.home() / ".kube" / "config"
    if not path.exists():
        raise BadInput(str(path), "does not exist", "name the cluster's kubeconfig: --kubeconfig FILE")
    return path


def read_kubeconfig(path: Path) -> str:
    """Return a kubeconfig's text; of several files, one document with absolute paths. For each name the first file
    counts, and the first current-context. Raises OSError, UnicodeDecodeError; BadInput for a file of several that is
    not a kubeconfig."""
    files = [Path(part).expanduser() for part in str(path).split(os.pathsep)]
    if path.exists() or len(files) < 2:
        return file_text(path)
    import yaml

    merged: dict[str, Any] = {section: [] for section in _SECTIONS}
    for file in files:
        document = _document(file)
        if document.get("current-context") and not merged.get("current-context"):
            merged["current-context"] = document["current-context"]
        for section in _SECTIONS:
            known = {entry.get("name") for entry in merged[section]}
            entries = document.get(section)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("name") not in known:
                    merged[section].append(_with_paths(entry, file.resolve().parent))
    return yaml.safe_dump(merged)


def _document(file: Path) -> dict[str, Any]:
    from yaml import YAMLError

    from chalicelib.net.safe_yaml import parsed

    damaged: tuple[type[Exception], ...] = (YAMLError, *MALFORMED)
    try:
        document = parsed(file_text(file)) or {}
    except damaged:  # the parser's message may quote a secret
        document = None
    if not isinstance(document, dict):
        raise BadInput(f"kubeconfig file {file}", "is not a YAML mapping", "take it out of KUBECONFIG, or correct it")
    return document


def _with_paths(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return an entry of a section with absolute paths."""
    made = dict(entry)
    for kind, keys in _FILES.items():
        body = made.get(kind)
        if not isinstance(body, dict):
            continue
        body = {key: _absolute(value, folder) if key in keys else value for key, value in body.items()}
        plugin = body.get("exec")
        if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
            body["exec"] = {**plugin, "command": _absolute(plugin["command"], folder)}
        made[kind] = body
    return made


def _absolute(value: object, folder: Path) -> object:
    return str(folder / value) if isinstance(value, str) and value else value
