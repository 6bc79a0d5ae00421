"""Reduces botocore's data to the services that are called, because a session and a client
read it at every cold start.

botocore describes every AWS service in 20 MB of JSON. Parsing endpoints.json alone takes longer
than parsing all other data of a client. Removed are other services, older versions of a service's
API, documentation texts, and the unused examples, paginators and waiters. All partitions and
regions, and all operations of a service, stay.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

#: The AWS services that are called; tests/functional compares this with the code.
SERVICES = frozenset(
    {"dynamodb", "eks", "lambda", "s3", "secretsmanager", "sns", "sqs", "ssm", "sts"}
)

#: Files kept per service: its operations, botocore's corrections of these, and its endpoints.
_FILES = ("service-2", "service-2.sdk-extras", "endpoint-rule-set-1")

_TEXTS = ("documentation", "deprecatedMessage")
_TYPED = ("member", "key", "value", "input", "output")


def cut(data: Path) -> None:
    """Reduce the files in botocore's folder `data` in place. Raises KeyError or ValueError for
    files of an unknown form."""
    _write(data / "endpoints.json", _endpoints(_read(data / "endpoints.json")))
    for service in sorted(path for path in data.iterdir() if path.is_dir()):
        if service.name not in SERVICES:
            shutil.rmtree(service)
            continue
        *older, newest = sorted(service.iterdir())
        for version in older:
            shutil.rmtree(version)
        for file in sorted(newest.iterdir()):
            name = file.name.removesuffix(".gz").removesuffix(".json")
            if name in _FILES:
                _write(newest / f"{name}.json", without_texts(_read(file)))
            if name not in _FILES or file.suffix == ".gz":
                file.unlink()


def without_texts(description: dict[str, Any]) -> dict[str, Any]:
    """Return a service description without documentation texts. Members of a shape are kept, even
    if they are named like such texts."""
    kept = _plain(description)
    for section in ("operations", "shapes"):
        if section in kept:
            kept[section] = {name: _shape(one) for name, one in kept[section].items()}
    return kept


def _shape(one: dict[str, Any]) -> dict[str, Any]:
    kept = _plain(one)
    if "members" in kept:
        kept["members"] = {name: _plain(member) for name, member in kept["members"].items()}
    if "errors" in kept:
        kept["errors"] = [_plain(error) for error in kept["errors"]]
    return {name: _plain(value) if name in _TYPED else value for name, value in kept.items()}


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in _TEXTS}


def _endpoints(table: dict[str, Any]) -> dict[str, Any]:
    """Return every partition with all its properties, reduced to the services that are called."""
    partitions = [
        {
            **partition,
            "services": {
                name: one for name, one in partition["services"].items() if name in SERVICES
            },
        }
        for partition in table["partitions"]
    ]
    return {**table, "partitions": partitions}


def _read(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    made: dict[str, Any] = json.loads(gzip.decompress(content) if file.suffix == ".gz" else content)
    return made


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, separators=(",", ":")))
