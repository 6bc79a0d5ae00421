"""How a behaviour of moto's is replaced: attributes of its classes and modules, which are not declared for that."""

from __future__ import annotations

from typing import Any


def replace(owner: Any, **values: Any) -> None:
    """Give a class or a module of moto other attributes, for the rest of the process."""
    for name, value in values.items():
        setattr(owner, name, value)


def original(owner: Any, name: str) -> Any:
    """What such an attribute is now; of a class method the plain function."""
    found = getattr(owner, name)
    return getattr(found, "__func__", found) if isinstance(owner, type) else found
