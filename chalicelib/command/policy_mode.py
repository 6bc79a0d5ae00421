"""Changes the mode of a policy document and leaves the rest of its text as it is."""

from __future__ import annotations

import re
from typing import Any

MODES = ("off", "shadow", "active")
"""The document's words for the mode. What a mode permits is decided in dispatch/mode_guard.py."""
_OFF = MODES[0]

_MODE = re.compile(r"(?m)^(?P<indent> +)mode:[ \t]*(?P<word>off|shadow|active|\"\w+\"|'\w+')(?P<rest>[ \t]*(#.*)?)$")


def with_mode(text: str, mode: str) -> str:
    """Return the document with spec.mode. Comments and order stay where the document has one line for it; otherwise the
    document is written anew, without comments. Schedules stay: they may set another mode while they are open."""
    import yaml

    wanted: Any = yaml.safe_load(text)
    wanted["spec"]["mode"] = mode
    _quote_modes(wanted)
    # A schedule has a mode, too: the edited text counts only if it says exactly what is wanted.
    for found in _MODE.finditer(text):
        start, end = found.span("word")
        edited = text[:start] + (f'"{mode}"' if mode == _OFF else mode) + text[end:]
        if _quote_modes(yaml.safe_load(edited)) == wanted:
            return edited
    return str(yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True))


def _quote_modes(document: Any) -> Any:
    """Return the document with the modes of schedules as text: YAML 1.1 reads a plain `off` as false."""
    for schedule in document["spec"].get("schedules") or ():
        if isinstance(schedule, dict) and schedule.get("mode") is False:
            schedule["mode"] = _OFF
    return document
