"""Finds flags in commented lines of a manifest, which a YAML reader does not see."""

from __future__ import annotations

import re

from chalicelib.policy.importers.autoscaler_input import Remark
from chalicelib.policy.importers.report import Verdict

_COMMENTED = re.compile(r"^[ \t]*#[ \t#]*-[ \t]+[\"']?(--?[A-Za-z][^\n]{0,300})", re.MULTILINE)
_MOST = 100


def commented_flags(file: str, text: str) -> tuple[Remark, ...]:
    """Return a remark for each flag in a comment."""
    remarks: list[Remark] = []
    line, before = 1, 0
    for found in _COMMENTED.finditer(text):
        line += text.count("\n", before, found.start(1))
        before = found.start(1)
        word = found[1].strip().rstrip("\"'")
        remarks.append(Remark(f"{file}:{line}", word, Verdict.TOLD, "commented out, not read"))
        if len(remarks) == _MOST:
            break
    return tuple(remarks)
