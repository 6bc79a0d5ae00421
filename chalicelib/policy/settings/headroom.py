"""spec.headroom: spare capacity that is kept free."""

from __future__ import annotations

import msgspec


class Headroom(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Spare capacity, as virtual pods or as a percentage of the pods' requests.

    groups: where it must be, in total over all of them; anywhere in the cluster if empty.
    Either pods > 0 with cpu (millicores) and memory (bytes) each, or percent > 0 (of the
    requests of the pods in scope).
    """

    name: str
    groups: tuple[str, ...] = ()
    pods: int = 0
    cpu: int = 0
    memory: int = 0
    percent: int = 0
