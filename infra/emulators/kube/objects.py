"""Kubernetes objects in this simulation: plain JSON data, and operations on
them that all modules share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

KubeObject = dict[str, Any]
Json = TypeVar("Json")
_NESTED = frozenset({dict, list})


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {
            key: _copied(each) if type(each) in _NESTED else each for key, each in value.items()
        }
    if type(value) is list:
        return [_copied(each) if type(each) in _NESTED else each for each in value]
    return value


def clone(value: Json) -> Json:
    """Copy JSON data deeply (several times faster than copy.deepcopy)."""
    copied: Json = _copied(value)
    return copied


def dig(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, None if any of them is missing or is not an object."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def conditions_of(obj: Mapping[str, Any]) -> Sequence[KubeObject]:
    """Return status.conditions (READ ONLY), empty if there are none."""
    status = obj.get("status")
    return status.get("conditions") or () if isinstance(status, dict) else ()


def condition(obj: KubeObject, type_: str) -> KubeObject | None:
    """Return the entry of status.conditions with that type, or None."""
    for each in conditions_of(obj):
        if each.get("type") == type_:
            return dict(each)
    return None
