"""Reads the release of Cluster Autoscaler from the tag of an image. Forks of vendors keep its first two numbers."""

from __future__ import annotations

import re

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote

_RELEASE = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,4})(?![0-9])")


def release_of(image: str, given: str) -> tuple[int, int] | None:
    """Return (major, minor) of --image-version if it is given, otherwise of the image's tag; None without a release.

    Raises BadInput for an --image-version that is not a release.
    """
    if given:
        found = _RELEASE.match(given)
        if found is None:
            raise BadInput("--image-version", f"{quote(given)} is not a release", "write it like 1.29")
        return int(found[1]), int(found[2])
    tag = image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[2]
    found = _RELEASE.match(tag)
    return (int(found[1]), int(found[2])) if found else None
