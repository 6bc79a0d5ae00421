"""Removes the names of secrets from the responses of the read routes, and from notifications.

A reader of decisions does not need the names under which a deployment stores its credentials.
Decisions are stored as they were written, and errors name the secret they concern, because the
operator who corrects it needs the name; so the names are removed from the response. Errors may be
older than the policy, so text is searched for more than the policy's own names.

Policies and errors may be long and are written by others, so the work is proportional to
the length of the text: each word is looked up in a set, and no pattern can give back
characters that it has matched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from chalicelib.policy.secret_names import named_by
from chalicelib.policy.settings.cluster_policy import Policy

SHOWN = "***"
MOST_NAMES = 200
"""Names that are searched for. A policy has a few; one that cannot be read may have any number."""
_SHORTEST = 8  # characters; a shorter name without a slash may be an ordinary word
_NAME = r"[A-Za-z0-9/_+=.@-]"
_ENDS = "/."  # of a sentence or a list, not of a name
_MARKS = "/_+=.@-"
_OF_PARAMETERS = "ssm:"
_WORD = re.compile(rf"(?:\bssm:)?{_NAME}++")
# `credentialsSecret: NAME` in YAML or JSON.
_SET = re.compile(rf"(?i)secret[\"']?[ \t]*+:\s*+(?:[\"'\[-][\s\"']*+)?((?:ssm:)?{_NAME}++)")
# The form used in errors: `secret NAME: …`, and names of the usual form anywhere
# after the word; also an ARN.
_WRITTEN = re.compile(
    rf"(?<=\bsecret )(?P<secret>(?:ssm:)?{_NAME}++)(?P<colon>:)?"
    rf"|(?:(?<=\bparameter )|\bssm:)(?P<parameter>/{_NAME}*+)"
    rf"|\barn:[a-z0-9-]++:secretsmanager:[a-z0-9-]*+:[0-9]*+:secret:{_NAME}++"
)
_BEFORE_NAMES = ("secret ", "parameter ", "ssm:", ":secretsmanager:")
"""A text that has none of these has no match of _WRITTEN. The pattern takes 0.1 µs a character."""


def without_secrets(value: Any, text: str, policy: Policy | None = None) -> Any:
    """Return the same JSON value with the names of secrets replaced by `***` in all its texts.
    policy: the one in force, whose names are known; where there is none, those in its stored
    text, which may be invalid."""
    return without_names(
        value, _names(text) if policy is None else {name for _, name, _ in named_by(policy)}
    )


def policy_without_secrets(text: str) -> str:
    """Return the text of a policy, valid or not, with the names of secrets replaced by `***`."""
    hidden: str = without_names(text, _names(text))
    return _SET.sub(lambda found: found[0][: found.start(1) - found.start()] + SHOWN, hidden)


def without_names(value: Any, names: Collection[str]) -> Any:
    """Return the same JSON value with these names of secrets, and names that errors write in their
    usual form, replaced by `***` in all its texts."""
    names_by_stem: dict[str, list[str]] = {}
    for name in sorted(islice(names, MOST_NAMES), key=len, reverse=True):
        bare = name.removeprefix(_OF_PARAMETERS)  # as errors write it
        if "/" in bare or len(bare) >= _SHORTEST:
            names_by_stem.setdefault(bare.rstrip(_MARKS), []).append(bare)
    return _hidden(value, names_by_stem)


def _names(text: str) -> set[str]:
    """Return the values of keys that end with `secret`, the first ones."""
    names: set[str] = set()
    for match in _SET.finditer(text):
        names.add(match[1].rstrip("."))
        if len(names) == MOST_NAMES:
            break
    return names


def _hidden(value: Any, known: Mapping[str, Sequence[str]]) -> Any:
    if isinstance(value, str):
        text = (
            _WRITTEN.sub(_hide_written, value)
            if any(words in value for words in _BEFORE_NAMES)
            else value
        )
        # Most texts have no known name: one pass over the distinct words decides,
        # without a call for each word.
        if known and any(_hide_known(word, known) != word for word in set(_WORD.findall(text))):
            return _WORD.sub(lambda match: _hide_known(match[0], known), text)
        return text
    if isinstance(value, dict):
        return {key: _hidden(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item, known) for item in value]
    return value


def _hide_written(found: re.Match[str]) -> str:
    """Return a name in the form of errors without the name; the rest of a match stays."""
    word = found["secret"] or found["parameter"]
    if word is None:
        return SHOWN
    name = word.rstrip(_ENDS)
    if found["colon"]:
        return f"{SHOWN}:"
    return SHOWN + word[len(name) :] if "/" in name else found[0]


def _hide_known(word: str, known: Mapping[str, Sequence[str]]) -> str:
    """Return a word without the known name with which it begins, if only marks follow the name.
    known: names by what they are without marks at their end, the longest first."""
    bare = word.removeprefix(_OF_PARAMETERS)
    for name in known.get(bare.rstrip(_MARKS), ()):
        if bare.startswith(name):
            return SHOWN + bare[len(name) :]
    return word
