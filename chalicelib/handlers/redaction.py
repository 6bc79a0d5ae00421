"""Names of secrets are left out of what the reading routes answer.

Whoever may read decisions need not know under which names a deployment keeps its credentials. What was decided is kept
as it was written, and errors name the secret they are about, as the person who has to correct it needs it; so the
names are taken out on the way to the caller. Errors may be older than the policy, so not its names alone are sought.
"""

from __future__ import annotations

import re
from typing import Any

SHOWN = "***"
_SHORTEST = 8  # characters; a shorter name without a slash may be any word
_NAME = r"[A-Za-z0-9/_+=.@-]"
# `credentialsSecret: NAME` in YAML or JSON.
_SET = re.compile(rf"(?i)secret[\"']?[ \t]*:\s*(?:[\"'\[-][\s\"']*)?((?:ssm:)?{_NAME}+)")
# As errors write it: `secret NAME: …`, and names of the usual form anywhere behind the word; also an ARN.
_WRITTEN = re.compile(
    rf"(?<=\bsecret )(?:(?:ssm:)?{_NAME}+(?=:)|{_NAME}*/{_NAME}*[A-Za-z0-9_+=@-])"
    rf"|(?<=\bparameter )/{_NAME}*[A-Za-z0-9_+=@-]|\bssm:/{_NAME}*[A-Za-z0-9_+=@-]"
    rf"|\barn:[a-z0-9-]+:secretsmanager:[a-z0-9-]*:[0-9]*:secret:{_NAME}+"
)


def without_secrets(value: Any, policy: str) -> Any:
    """The same JSON value, in all of whose texts the names of secrets are `***`. policy: the stored text, valid or not,
    whose names are known."""
    names = _names(policy)
    known = re.compile("|".join(rf"(?<!{_NAME}){re.escape(name)}(?!{_NAME}*[A-Za-z0-9])" for name in names) or r"\b\B")
    return _hidden(value, known)


def _names(policy: str) -> tuple[str, ...]:
    """What keys that end with `secret` are set to, the longest first."""
    found = {name.rstrip(".") for name in _SET.findall(policy)}
    found |= {name.removeprefix("ssm:") for name in found}  # as errors write the name of a parameter
    return tuple(
        sorted((name for name in found if "/" in name or len(name) >= _SHORTEST), key=lambda name: (-len(name), name))
    )


def _hidden(value: Any, known: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return known.sub(SHOWN, _WRITTEN.sub(SHOWN, value))
    if isinstance(value, dict):
        return {key: _hidden(each, known) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(each, known) for each in value]
    return value
