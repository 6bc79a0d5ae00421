"""Replaces attributes of moto's classes and modules, which are not declared for that."""

from __future__ import annotations

from typing import Any


def replace(owner: Any, **values: Any) -> None:
    """Set attributes of a class or module of moto for the rest of the process."""
    for name, value in values.items():
        setattr(owner, name, value)


def original(owner: Any, name: str) -> Any:
    """Return the current value of such an attribute; for a class method the plain function."""
    found = getattr(owner, name)
    return getattr(found, "__func__", found) if isinstance(owner, type) else found
