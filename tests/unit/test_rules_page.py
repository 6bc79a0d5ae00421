"""Every rule of CCE has a test that carries its id, and docs/rules.md lists them."""

from __future__ import annotations

from pathlib import Path

from infra.tools.cce_rules_page import RULES, SCENARIOS, held_by


def test_rules_page_every_rule_and_scenario_has_a_test() -> None:
    held = held_by()
    assert [name for name in (*RULES, *SCENARIOS) if name not in held] == []


def test_rules_page_no_test_carries_an_unknown_id() -> None:
    assert sorted(held_by().keys() - RULES.keys() - SCENARIOS.keys()) == []


def test_rules_page_reads_ids_from_test_names(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    names = (
        "CCE_A3_4_a_node",
        "CCE_A10_a_guard",
        "CCE_A2_10_rules_at_most",
        "CCE_7_and_CCE_A4",
        "CCE_DANGER_2_x",
        "CCE_A6_99_none",
        "CCE_77_none",
        "CCE_A3_40_of_100",
        "CCEXA3_4",
    )
    (tests / "test_some.py").write_text(
        "".join(f"def test_{name}() -> None: ...\n" for name in names)
    )
    assert (
        set(held_by(tests))
        == {"A3.4", "A10", "A2", "7", "A4", "DANGER_2", "77"} | {"A6.99", "A3.40"} - RULES.keys()
    )
