"""docs/ says what the declarations in the code say."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.tools.generated_pages import PAGES, TABLES, current
from tests.unit.test_docs import ROOT, each_document

DOCS = ROOT / "docs"


@each_document
def test_docs_are_as_the_declarations_say(document: Path) -> None:
    assert document.read_text("utf-8") == current(document), "run make docs"


def test_docs_have_every_generated_page_and_table() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))
    assert [name for name in PAGES if not (DOCS / name).exists()] == []
    assert [text.count(f"<!-- generated: {name} -->") for name in TABLES] == [1] * len(TABLES)


def test_docs_a_table_or_a_setting_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for text in ("no-such-table -->\n|", "defaults -->\n| `noSuchKey` | 1 | x |"):
        page.write_text(f"<!-- generated: {text}\n<!-- end -->\n")
        with pytest.raises(KeyError, match=r"no-such-table|noSuchKey"):
            current(page)


def test_docs_defaults_of_settings_are_filled_in_and_other_rows_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    rows = "| `minSavings`: a share | 1 | x |\n| a back-off | 1h | y |"
    page.write_text(f"a\n\n<!-- generated: defaults -->\n{rows}\n<!-- end -->\nb\n")
    assert "| `minSavings`: a share | `10%` | x |\n| a back-off | 1h | y |\n" in current(page)
