"""The search for unused code finds it, counts tests as users of infra only, and
refuses stale exceptions.
"""

from __future__ import annotations

from pathlib import Path

from infra.tools.unused_code import UnusedDefinition, UnusedException, findings, unused


def test_code_that_only_tests_call_is_unused_in_chalicelib_and_used_in_infra(
    tmp_path: Path,
) -> None:
    for folder in ("chalicelib", "infra", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "chalicelib/one.py").write_text("def called(): ...\ndef tested(): ...\n")
    (tmp_path / "infra/two.py").write_text(
        "from chalicelib.one import called\ncalled()\ndef emulated(): ...\n"
    )
    (tmp_path / "tests/test_all.py").write_text(
        "from chalicelib.one import tested\nfrom infra.two import emulated\ntested()\nemulated()\n"
    )
    assert unused(tmp_path) == [UnusedDefinition("chalicelib/one.py", 2, "function", "tested")]


def test_excepted_definition_is_not_a_finding() -> None:
    exception = UnusedException("chalicelib/*.py", ("act_*",), "entered by name")
    assert (
        findings([UnusedDefinition("chalicelib/act.py", 1, "function", "act_now")], [exception])
        == []
    )


def test_exception_that_matches_nothing_is_a_finding() -> None:
    [finding] = findings([], [UnusedException("chalicelib/*.py", ("act_*",), "entered by name")])
    assert "act_*" in finding
