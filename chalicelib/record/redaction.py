"""Removes the names of secrets from the responses of the read routes, and from notifications.

A reader of decisions does not need the names under which a deployment stores its credentials. Decisions are stored as
they were written, and errors name the secret they concern, because the operator who corrects it needs the name; so the
names are removed from the response. Errors may be older than the policy, so text is searched for more than the policy's
own names.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

SHOWN = "***"
_SHORTEST = 8  # characters; a shorter name without a slash may be an ordinary word
_NAME = r"[A-Za-z0-9/_+=.@-]"
# `credentialsSecret: NAME` in YAML or JSON.
_SET = re.compile(rf"(?i)secret[\"']?[ \t]*:\s*(?:[\"'\[-][\s\"']*)?((?:ssm:)?{_NAME}+)")
# The form used in errors: `secret NAME: …`, and names of the usual form anywhere after the word; also an ARN.
_WRITTEN = re.compile(
    rf"(?<=\bsecret )(?:(?:ssm:)?{_NAME}+(?=:)|{_NAME}*/{_NAME}*[A-Za-z0-9_+=@-])"
    rf"|(?<=\bparameter )/{_NAME}*[A-Za-z0-9_+=@-]|\bssm:/{_NAME}*[A-Za-z0-9_+=@-]"
    rf"|\barn:[a-z0-9-]+:secretsmanager:[a-z0-9-]*:[0-9]*:secret:{_NAME}+"
)


def without_secrets(value: Any, policy: str) -> Any:
    """Return the same JSON value with the names of secrets replaced by `***` in all its texts. policy: the stored text,
    valid or not, whose names are known."""
    return without_names(value, _names(policy))


def without_names(value: Any, names: Collection[str]) -> Any:
    """Return the same JSON value with these names of secrets, and names that errors write in their usual form, replaced
    by `***` in all its texts."""
    found = {*names, *(name.removeprefix("ssm:") for name in names)}  # errors have the second form
    usable = (name for name in found if "/" in name or len(name) >= _SHORTEST)
    longest_first = sorted(usable, key=lambda name: (-len(name), name))
    known = re.compile(
        "|".join(rf"(?<!{_NAME}){re.escape(name)}(?!{_NAME}*[A-Za-z0-9])" for name in longest_first) or r"\b\B"
    )
    return _hidden(value, known)


def _names(policy: str) -> set[str]:
    """Return the values of keys that end with `secret`."""
    return {name.rstrip(".") for name in _SET.findall(policy)}


def _hidden(value: Any, known: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return known.sub(SHOWN, _WRITTEN.sub(SHOWN, value))
    if isinstance(value, dict):
        return {key: _hidden(each, known) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(each, known) for each in value]
    return value
