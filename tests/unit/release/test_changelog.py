"""Extraction of one version's section from CHANGELOG.md."""

from __future__ import annotations

import pytest

from infra.release.build import section
from infra.release.errors import ReleaseRefused

TEXT = """# Changelog

## [Unreleased]

- Not yet.

## [1.2.0] - 2030-01-31

### Added

- This.

## 1.1.0

- That.

## [1.0.0] - 2029-12-31
"""


@pytest.mark.parametrize(
    ("version", "written"),
    [
        ("1.2.0", "### Added\n\n- This.\n"),
        ("1.1.0", "- That.\n"),
    ],
)
def test_changelog_section_ends_where_the_next_release_begins(version: str, written: str) -> None:
    assert section(TEXT, version) == written


@pytest.mark.parametrize(
    ("text", "version", "says"),
    [
        (
            TEXT,
            "1.3.0",
            (
                r"CHANGELOG\.md has no section of 1\.3\.0; write one below `## \[1\.3\.0\] - "
                r"YYYY-MM-DD`"
            ),
        ),
        (TEXT, "1.2", r"has no section of 1\.2;"),
        (TEXT, "1.0.0", r"the section of 1\.0\.0 is empty"),
        (TEXT + TEXT, "1.2.0", r"has 2 sections of 1\.2\.0"),
        ("", "1.2.0", r"has no section of 1\.2\.0"),
    ],
    ids=["missing", "part-of-a-version", "empty", "twice", "no-file"],
)
def test_changelog_version_without_a_section_is_refused(text: str, version: str, says: str) -> None:
    with pytest.raises(ReleaseRefused, match=says):
        section(text, version)
