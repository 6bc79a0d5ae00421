"""Finds flags of the autoscaler in commented lines of a manifest, which a YAML reader does not see.

Words that are not its flags are left out: they may belong to another program, and be secret.
"""

from __future__ import annotations

import re

from chalicelib.command.importers.autoscaler_input import Remark
from chalicelib.command.importers.flag_kinds import flag_name
from chalicelib.command.importers.flag_table import KNOWN
from chalicelib.command.importers.report import Verdict

_COMMENTED = re.compile(r"^[ \t]*#[ \t#]*-[ \t]+[\"']?(--?[A-Za-z][^\n]{0,300})", re.MULTILINE)
_MOST = 100


def commented_flags(file: str, text: str) -> tuple[Remark, ...]:
    """Return a remark for each known flag in a comment."""
    remarks: list[Remark] = []
    line, before = 1, 0
    for found in _COMMENTED.finditer(text):
        line += text.count("\n", before, found.start(1))
        before = found.start(1)
        word = found[1].strip().rstrip("\"'")
        if flag_name(re.split(r"[= ]", word.lstrip("-"), maxsplit=1)[0]) not in KNOWN:
            continue
        remarks.append(Remark(f"{file}:{line}", word, Verdict.TOLD, "commented out, not read"))
        if len(remarks) == _MOST:
            break
    return tuple(remarks)
