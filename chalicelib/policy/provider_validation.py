"""Collects the providers' own validation of a document, even if the document is refused for another reason.

Only a provider knows which of its settings are consistent, so its mistakes come from outside this package. They are
collected before the document is known to be valid, because otherwise a refused secret would hide them until the next
try. A mistake that is already reported causes no second one: a setting that could not be read reaches the provider as
it was written, and any further mistake about the same setting is omitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy, KubernetesAccess, Policy
from chalicelib.policy.diagnostics import Diagnostics, Path, closest
from chalicelib.policy.partial_policy import SPEC, PartialPolicy
from chalicelib.policy.providers import PROVIDERS
from chalicelib.policy.yaml_document import Mapping, Node, Scalar, Sequence

Ask = Callable[[Policy], Iterable[BadInput]]
"""(policy) -> the problems that its providers report. Places are `providers.NAME.key`, or begin with `nodeGroups`."""

_GROUPS: Path = (*SPEC, "nodeGroups")
_WORDS = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")


def asked(
    draft_policy: PartialPolicy, root_node: Node, name: str, ask: Ask, diagnostics: Diagnostics
) -> tuple[BadInput, ...]:
    """Return what the providers refuse of the readable settings, except for what the report has already.

    name: the cluster's, empty where it could not be read. Call it before the deployment's restrictions are reported: a
    setting that is not permitted is readable, and its provider must see it.
    """
    settings = {
        provider: _as_written(provider, given, root_node, diagnostics)
        for provider, given in (draft_policy.providers or {}).items()
        if _knows_its_groups(draft_policy, provider, diagnostics)
    }
    groups = tuple(
        GroupPolicy(**group)
        for at, group in enumerate(draft_policy.groups)
        if not diagnostics.has_problem_under((*_GROUPS, at))
    )
    policy = Policy(
        name=name, kubernetes=KubernetesAccess(**draft_policy.kubernetes or {}), providers=settings, node_groups=groups
    )
    return tuple(ask(policy))


def further(found: Iterable[BadInput], place: str, diagnostics: Diagnostics) -> tuple[BadInput, ...]:
    """Return the mistakes about settings that are not in the report yet. place: the document, for messages."""
    kept = []
    for each in found:
        path = each.place if each.place.startswith("spec.") else f"spec.{each.place}"
        if not (_WORDS.match(path) and diagnostics.has_problem_under(tuple(path.split(".")))):
            kept.append(BadInput(f"{place}: {path}", each.problem, each.remedy))
    return tuple(kept)


def _knows_its_groups(draft_policy: PartialPolicy, provider: str, diagnostics: Diagnostics) -> bool:
    """Return whether no unreadable entry of nodeGroups may belong to this provider."""
    wrong = [group for at, group in enumerate(draft_policy.groups) if diagnostics.has_problem_under((*_GROUPS, at))]
    if not draft_policy.groups and diagnostics.has_problem_under(_GROUPS):
        return False
    return not any(group.get("provider", provider) == provider for group in wrong)


def _as_written(provider: str, given: dict[str, str], root_node: Node, diagnostics: Diagnostics) -> dict[str, str]:
    """Return the readable settings, and the others as text; a misspelt key counts as the intended one."""
    place: Path = (*SPEC, "providers", provider)
    section = PROVIDERS[provider].section
    if section is None or not diagnostics.has_problem_under(place):
        return given
    known = {field.key for field in section.fields}
    found = dict(given)
    for key, value in _entries(root_node, place):
        meant = key if key in known else closest(key, known)
        text = _text(value)
        if meant and text is not None:
            found.setdefault(meant, text)
    return found


def _entries(root_node: Node, path: Path) -> Iterator[tuple[str, Node]]:
    node: Node | None = root_node
    for part in path:
        entries = node.entries if isinstance(node, Mapping) else ()
        node = next((value for key, value in entries if key.text == part), None)
    for key, value in node.entries if isinstance(node, Mapping) else ():
        yield key.text, value


def _text(node: Any) -> str | None:
    """Return the text of a setting: a scalar, or the lines of a list; None for any other value."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence) and all(isinstance(item, Scalar) for item in node.items):
        return "\n".join(item.text for item in node.items if isinstance(item, Scalar))
    return None
