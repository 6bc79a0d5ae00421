"""Hostnames of new servers, which are also the names of their nodes.

The eight letters are derived from a seed and not random: the operation determines the names of its servers, so they can
be found again after a crash.
"""

from __future__ import annotations

import hashlib
import re

from chalicelib.model.errors import BadInput
from chalicelib.providers.cherryservers.go_template import parse
from chalicelib.providers.cherryservers.pool_definition import Definition

DEFAULT_PATTERN = "k8s-{{.ClusterName}}-{{.NodeGroup}}-{{.RandString8}}"

_LETTERS = "acdefghijklmnopqrstuvwxyz"  # upstream's alphabet, which has no b
_COUNT = 8
_RANDOM = "RandString8"
_FIELDS = ("ClusterName", "NodeGroup", _RANDOM)
_LONGEST = 63
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\Z", re.ASCII)


def letters_for(seed: str) -> str:
    """Return eight letters, always the same for the same seed."""
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest())
    found = []
    for _ in range(_COUNT):
        number, rest = divmod(number, len(_LETTERS))
        found.append(_LETTERS[rest])
    return "".join(found)


def hostname(definition: Definition, letters: str) -> str:
    """Return the pattern with all fields filled in. Raises BadInput if the result is not a valid node name."""
    values = {"ClusterName": definition.cluster_name, "NodeGroup": definition.pool, _RANDOM: letters}
    place = f"pool {definition.pool}: hostname-pattern"
    pattern = parse(definition.hostname_pattern.encode(), _FIELDS, place)
    if _RANDOM not in pattern.fields:
        raise BadInput(place, "gives all machines one name", f"put {{{{.{_RANDOM}}}}} into it")
    name = pattern.fill(values).decode("utf-8", "replace")
    if len(name) > _LONGEST or not _NAME.match(name):
        raise BadInput(
            place,
            f"gives {name[:100]!r}, which cannot be the name of a node",
            f"give the pool a pattern of its own, like k8s-a-{{{{.{_RANDOM}}}}}, that makes small letters, "
            f"digits and inner dashes, at most {_LONGEST} in all",
        )
    return name
