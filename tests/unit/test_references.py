"""Citations lead somewhere: each page that code or documents name exists, and so
does each quoted heading.

A comment that cites a page outside of the repository, or a rule by a private number, cannot
be followed by a reader.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_TEXT = (".py", ".md", ".toml", ".yml", ".yaml")
#: This file quotes what it refuses.
_EXEMPT = ("tests/unit/test_references.py",)
#: Files that a workflow or a test makes, which are not pages.
_NOT_PAGES = frozenset({"notes.md", "no-such-file.md"})
#: The page that defines the ids of CCE's rules, its generator, and its test.
_DEFINES_RULES = ("docs/rules.md", "rules_page.py")

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_DEFINITION = re.compile(r"^\[[^\]]+\]: (\S+)", re.MULTILINE)
_URL = re.compile(r"https?://\S+")
#: A page, then perhaps an anchor, or a heading in quotes.
_PAGE = re.compile(
    r"(?<![\w./<>*{}-])((?:[\w.-]+/)*[A-Za-z][\w-]*\.md)\b"
    r"(?:#([\w-]+)|`?,? ?\\?\"([A-Z][^\"\\\n]*)\\?\")?"
)
#: Rules by a number that only another page explains: "scale-down 6", "A6.3", "B12",
#: "case C12", "demands 25".
_PRIVATE = re.compile(
    r"\b(?:demands?|scale-up|scale-down|peers|ecosystem)(?:\.md)? \d+\b"
    r"|\b[A-Z]\d{1,2}\.\d{1,2}(?:\.\d+)?\b"
    r"|\b(?:cases?|rules?|defects?|dangers?) [A-Z]\d{1,2}\b"
    r"|\b(?:ALI|EXO|CHERRY|CAPI|CCE)[ _](?:DEFECT|DANGER)?_?[A-Z]?\d+\b"
)
#: Things of that form that are something else: chip and instance families, signature versions.
_NOT_RULES = re.compile(r"\b(?:HMAC|SHA|UTF|RFC|TLS)\b")


def files() -> list[str]:
    """The tracked text files, by their path within the repository."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [
        name
        for name in listed.stdout.splitlines()
        if name not in _EXEMPT
        and (ROOT / name).is_file()
        and (name.endswith(_TEXT) or Path(name).name == "Makefile")
    ]


@cache
def headings(page: Path) -> frozenset[str]:
    text = _FENCE.sub("", page.read_text("utf-8"))
    return frozenset(heading.strip() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the headings, and those that the page has of its own."""
    own = (
        set(re.findall(r'<a id="([a-z0-9-]+)"></a>', page.read_text("utf-8")))
        if page.suffix == ".md"
        else set()
    )
    return own | {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in headings(page)
    }


def resolved(name: str, citing: str) -> Path | None:
    """The page that a citation names: from the root, from docs/, or from the
    folder of the citing file."""
    for folder in (ROOT, ROOT / "docs", (ROOT / citing).parent):
        if (folder / name).is_file():
            return folder / name
    return None


def unwrapped(text: str) -> str:
    """The text with each line break, and the comment sign or quote behind it, as one blank."""
    return re.sub(r"[ \t]*\n[ \t]*(?:#:? ?|> ?)?", " ", text)


def lost_pages(text: str, citing: str) -> Iterator[str]:
    """Every mention of a page that is not there, or whose heading is not."""
    for name, anchor, heading in _PAGE.findall(_URL.sub("", unwrapped(text))):
        page = resolved(name, citing)
        if name in _NOT_PAGES:
            continue
        if page is None:
            yield name
        elif anchor and anchor not in anchors(page):
            yield f"{name}#{anchor}"
        elif heading and heading not in headings(page):
            yield f'{name} "{heading}"'


def lost_links(text: str, citing: str) -> Iterator[str]:
    """Links of a Markdown page that lead to no file or heading of the repository."""
    prose = _FENCE.sub("", text)
    for link in _LINK.findall(prose) + _DEFINITION.findall(prose):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / citing).parent / path if path else ROOT / citing
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def private_rules(text: str) -> Iterator[str]:
    """Rules that are cited by a private number."""
    for line in _URL.sub("", text).splitlines():
        if not _NOT_RULES.search(line):
            yield from (found.group() for found in _PRIVATE.finditer(line))


def reported(found: dict[str, list[str]]) -> str:
    lines = [f"{name}: {', '.join(sorted(set(wrong)))}" for name, wrong in found.items()]
    return f"{sum(map(len, found.values()))} in {len(found)} files\n" + "\n".join(lines)


def offenders(find: object, ending: str = "") -> dict[str, list[str]]:
    assert callable(find)
    found = {
        name: list(find((ROOT / name).read_text("utf-8"), name))
        for name in files()
        if name.endswith(ending)
    }
    return {name: wrong for name, wrong in found.items() if wrong}


def test_no_file_cites_a_paragraph_by_its_number() -> None:
    found = offenders(lambda text, _: re.findall("§", text))
    assert not found, reported(found)


def test_every_cited_page_and_heading_is_in_the_repository() -> None:
    found = offenders(lost_pages)
    assert not found, reported(found)


def test_no_file_cites_a_rule_by_a_private_number() -> None:
    found = offenders(
        lambda text, name: [] if name.endswith(_DEFINES_RULES) else list(private_rules(text))
    )
    assert not found, reported(found)


def test_every_link_of_a_page_has_a_target() -> None:
    found = offenders(lost_links, ".md")
    assert not found, reported(found)


# -- the finders, on text that they must refuse or accept


@pytest.mark.parametrize(
    "text",
    [
        "as in no-such-page.md",
        'docs/reference/scale-up.md "No Such Heading"',
        "policy.md#no-such-anchor",
        "(see\n# providers/no-such-vendor.md)",
    ],
)
def test_citation_without_a_target_is_found(text: str) -> None:
    assert list(lost_pages(text, "chalicelib/plan/__init__.py"))


@pytest.mark.parametrize(
    "text",
    [
        "docs/policy.md",
        "see README.md",
        'docs/reference/scale-up.md "Estimator"',
        "reference/scale-up.md#estimator",
        'reference/scale-up.md\n    "Pending pods"',
        "https://example.org/no-such-page.md",
    ],
)
def test_citation_with_a_target_is_accepted(text: str) -> None:
    assert not list(lost_pages(text, "chalicelib/plan/__init__.py"))


@pytest.mark.parametrize(
    "text",
    ["as A6.3 says", "demands.md 25", "rule B3", "defects C12", "EXO_DEFECT_8", "ALI_DEFECT_4"],
)
def test_private_rule_number_is_found(text: str) -> None:
    assert list(private_rules(text))


@pytest.mark.parametrize("text", ["python3.12", "Kubernetes 1.36", "2.5.1", "a T4 GPU", "case 3"])
def test_version_is_not_a_private_rule_number(text: str) -> None:
    assert not list(private_rules(text))


def test_link_without_a_target_is_found() -> None:
    assert list(lost_links("[here](no-such-page.md)", "docs/policy.md")) == ["no-such-page.md"]
    assert list(lost_links("[here][1]\n\n[1]: #no-such-anchor", "docs/policy.md")) == [
        "#no-such-anchor"
    ]
