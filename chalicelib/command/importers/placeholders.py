"""Finds words that an example's author left for the reader to fill in, such as `[ASG_ID]` or `${CLUSTER_NAME}`.

Each is a mistake of the input with its place. All are reported at once, because an example has several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from chalicelib.command.importers.autoscaler_input import Argument, Variable
from chalicelib.command.importers.flag_kinds import PATHS
from chalicelib.command.importers.public_values import is_public_name, is_secret_name
from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote

_RENDER = "render it first: helm template"
_HELM = re.compile(r"\{\{")
_SHELL = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]{0,100})")
_PLAIN = re.compile(
    r"\[[A-Za-z][A-Za-z0-9_ -]{0,100}\]"  # [ASG_ID]
    r"|\{[A-Za-z][A-Za-z0-9_ -]{0,100}\}"  # {Project ID}
    r"|<[A-Za-z][^<>]{0,100}>"  # <BASE64_REGION_ID>
    r"|(?<![A-Za-z0-9])YOUR[_-][A-Za-z0-9_-]{1,100}"  # YOUR_PROJECT_ID
    r"|\$\{"  # ${NAME:=…}
)
_OUTPUT = re.compile(r"\$\(|`")
_EXAMPLES = {"nodes": "write it like 1:10:asg-bp18p2yfxow2dloq0001"}
MOST = 100


def remedy_for(text: str, flag: str = "") -> str:
    """Return what to do about the placeholder in a text, or an empty text if it has none."""
    if _HELM.search(text):
        return _RENDER
    if found := _SHELL.search(text):
        return f"give --env {found[1]}=VALUE"
    return _EXAMPLES.get(flag, "write the real value") if _PLAIN.search(text) else ""


def placeholder_problems(
    arguments: Sequence[Argument], variables: Iterable[Variable], *, of_shell: bool = False
) -> list[BadInput]:
    """Return one mistake for each value that has a placeholder, of all flags and of the variables that count.

    of_shell: `$(…)` is the output of a command, which is unknown.
    """
    named = [
        (each.place, f"--{each.flag}", each.value or "", each.flag)
        for each in arguments
        if each.flag not in PATHS or _HELM.search(each.value or "")
    ]
    named += [(each.place, each.name, each.value or "", "") for each in variables if is_public_name(each.name)]
    found = [
        BadInput(f"{place}: {name[:100]}", f"{quote(value)} is a placeholder", remedy)
        for place, name, value, flag in named
        if (remedy := remedy_for(value, flag))
    ]
    outputs = [each for each in arguments if of_shell and _OUTPUT.search(each.value or "")]
    return found + [
        BadInput(f"{each.place}: --{each.flag[:100]}", f"{quote(each.value or '')} runs a command", "write its output")
        for each in outputs
    ]


def template_problems(file: str, text: str) -> list[BadInput]:
    """Return one mistake for each line of a Helm template, whose text is not YAML before it is rendered. The line is
    not quoted: it may have a secret."""
    return [BadInput(f"{file}:{line}", "has a template of Helm", _RENDER) for line in _lines_with(text, _HELM)][:MOST]


def filled_in(text: str, environment: Mapping[str, str]) -> str:
    """Return a template of envsubst with the given variables in the place of `${NAME}`."""
    for name, value in environment.items():
        if is_secret_name(name):
            continue
        text = text.replace(f"${{{name}}}", value)
    return text


def _lines_with(text: str, pattern: re.Pattern[str]) -> Iterator[int]:
    for line, written in enumerate(text.splitlines(), 1):
        if not written.lstrip().startswith("#") and pattern.search(written):
            yield line
