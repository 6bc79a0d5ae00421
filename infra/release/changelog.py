"""Reads the section of a release in CHANGELOG.md, which becomes the release notes."""

from __future__ import annotations

import re

from infra.release.errors import ReleaseRefused

_HEADING = re.compile(r"^## \[?([^\]\s]+)\]?(?: - (\d{4}-\d{2}-\d{2}))?\s*$", re.MULTILINE)


def section(text: str, version: str) -> str:
    """Return the text below `## [1.2.3] - 2030-01-31` (also without brackets or date), up to the next release.

    Raises ReleaseRefused if the version has no section, several, or an empty one.
    """
    headings = list(_HEADING.finditer(text))
    found = [index for index, heading in enumerate(headings) if heading[1] == version]
    if not found:
        raise ReleaseRefused(f"CHANGELOG.md has no section of {version}; write one below `## [{version}] - YYYY-MM-DD`")
    if len(found) > 1:
        raise ReleaseRefused(f"CHANGELOG.md has {len(found)} sections of {version}; make them one")
    [index] = found
    end = headings[index + 1].start() if index + 1 < len(headings) else len(text)
    written = text[headings[index].end() : end].strip()
    if not written:
        raise ReleaseRefused(f"CHANGELOG.md: the section of {version} is empty; say what users notice")
    return written + "\n"
