"""YAML of strangers: a kubeconfig of a secret, a ConfigMap that anybody in the cluster may have written.

libyaml's loader goes as deep as the text does, and ends the whole process where the stack ends: nobody can catch that.
So the depth is counted from events first, which needs no stack.
"""

from __future__ import annotations

from typing import Any

import yaml

DEEPEST = 50
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def parsed(text: str, *, texts: bool = False) -> Any:
    """The document. texts: scalars stay text, whatever they look like. Raises yaml.YAMLError, also for one that is
    nested deeper than DEEPEST levels, and what a scalar that looks like a number may raise (ValueError)."""
    loader = _TEXTS if texts else _SAFE
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"nested deeper than {DEEPEST} levels")
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, in C where there is one
