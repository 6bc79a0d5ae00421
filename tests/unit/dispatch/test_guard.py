"""The only reader of the mode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chalicelib
from chalicelib.dispatch.guard import permitted
from chalicelib.model.policy import Mode, Policy

PACKAGE = Path(chalicelib.__file__).parent

#: Who may write the word: the guard, the model that declares it, and the policy's reader and writer.
_MAY = ("dispatch/guard.py", "model/policy.py", "policy/")


@pytest.mark.parametrize(("mode", "plan", "act"), [
    (Mode.OFF, False, False), (Mode.SHADOW, True, False), (Mode.ACTIVE, True, True),
])
def test_what_each_mode_permits(mode: Mode, plan: bool, act: bool) -> None:
    permission = permitted(Policy(name="shop", mode=mode))
    assert (permission.plan, permission.act, permission.word) == (plan, act, mode.value)


def test_nobody_else_reads_the_mode() -> None:
    readers = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bpolicy\.mode\b|\bMode\.(OFF|SHADOW|ACTIVE)\b", path.read_text())
    ]
    assert [reader for reader in readers if not reader.startswith(_MAY)] == []
