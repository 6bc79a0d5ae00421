"""Reads the CSI volume limits and the DRA devices of a new node.

Both are in annotations, because a Node that does not exist has neither a CSINode nor ResourceSlices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.providers.clusterapi.annotations import CAPACITY, is_domain

_LIMIT = re.compile(r"\+?[0-9]{1,10}\Z")
_LARGEST = 2**31 - 1


def read_volumes(annotations: Mapping[str, str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return CSI driver -> maximum volumes, 0 for unlimited, and a sentence about each invalid entry of `csi-driver`.

    Entries and their halves are trimmed; of two entries for one driver the last applies."""
    limits: dict[str, int] = {}
    warnings = []
    for entry in annotations.get(CAPACITY + "csi-driver", "").split(","):
        driver, _, limit = (part.strip() for part in entry.partition("="))
        if driver and _LIMIT.match(limit) and int(limit) <= _LARGEST:
            limits[driver] = int(limit)
        elif entry.strip():
            warnings.append(f"annotation {CAPACITY}csi-driver: {entry[:80]!r} was left out; write driver=limit")
    return limits, tuple(warnings)


def read_devices(annotations: Mapping[str, str], count: int) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return DRA driver -> devices that a new node publishes; empty without a driver or a count. count: gpu-count.

    They are in one ResourceSlice of the node's own pool, which is complete from the start.
    """
    driver = annotations.get(CAPACITY + "dra-driver", "").strip()
    if not driver or count <= 0:
        return {}, ()
    if not is_domain(driver):
        return {}, (f"annotation {CAPACITY}dra-driver: {driver[:80]!r} is not the name of a driver",)
    twice = annotations.get(CAPACITY + "gpu-type", "")
    note = f"annotations {CAPACITY}gpu-type and dra-driver both count the devices; keep the one that pods ask for"
    return {driver: count}, (note,) if twice else ()
