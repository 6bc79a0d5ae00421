"""The style sheet and the scripts of the pages, each under an address that ends
in a hash of its content.

A browser keeps them for a year: other content has another address. They come from the same origin
as the pages and are the only scripts that may run (render.SECURITY_HEADERS). uPlot draws the
charts; its licence stands beside it, and a test holds its version and its hash.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent / "static"
YEAR = 365 * 86400
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_FILES = {"page.css": ("uPlot.css", "page.css"), "page.js": ("page.js",), "uPlot.js": ("uPlot.js",)}


class Asset(msgspec.Struct, frozen=True):
    """One file as it is served."""

    name: str
    media_type: str
    content: bytes


@functools.cache
def assets() -> dict[str, Asset]:
    """Return the files by the name that the pages use, such as page.js; the name
    of an asset has the hash."""
    made = {}
    for name, parts in _FILES.items():
        content = b"\n".join((FOLDER / part).read_bytes() for part in parts)
        stem, _, extension = name.rpartition(".")
        hashed = f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.{extension}"
        made[name] = Asset(hashed, _TYPES[extension], content)
    return made


def asset(hashed_name: str) -> Asset | None:
    """Return the file with this name of an address; None where there is none."""
    return next((file for file in assets().values() if file.name == hashed_name), None)
