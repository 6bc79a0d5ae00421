"""Overrides options of a policy from the command line: `--option
scaleDownUnneededTime=5m`, for experiments.

It uses the same tables and messages: an override is refused or warned about
exactly as in a document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.policy.diagnostics import Diagnostics, Node, Scalar
from chalicelib.policy.options import (
    OptionValues,
    attribute,
    check_options,
    check_prices,
    find_row,
    warn_if_without_effect,
)
from chalicelib.policy.providers import without_prices
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.value_types import UNSET
from chalicelib.policy.yaml_document import read


def with_options(
    policy: Policy,
    settings: Sequence[str],
    *,
    place: str = "--option",
    warn: Callable[[str], None] | None = None,
) -> Policy:
    """Apply `NAME=VALUE` settings over the policy's own; raises BadInput.

    VALUE is what a document would have after the colon: `scaleDownUnneededTime=5m`,
    `startupTaint=[a, b]`. The last of several for one name applies. warn: called for each
    option that is not in force.
    """
    diagnostics, before = Diagnostics(place), Diagnostics(place)
    in_force: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            diagnostics.problem(
                (name,), "has no value", "write NAME=VALUE, such as scaleDownUnneededTime=5m"
            )
            continue
        row = find_row(name.strip(), (), diagnostics)
        if row is None:
            continue
        value = row.kind.read(_node(text, f"{place} {row.name}"), (row.name,), diagnostics)
        if value is UNSET:
            continue
        if attribute(row):
            in_force[attribute(row)] = value
        else:
            warn_if_without_effect(row, value, (row.name,), diagnostics)
    options = msgspec.structs.replace(policy.options, **in_force)
    for changed, report in ((policy.options, before), (options, diagnostics)):
        check_options(OptionValues(msgspec.structs.asdict(changed)), (), report)
        check_prices(
            changed.expander,
            listed=policy.prices is not None,
            unpriced=without_prices(policy.providers, managed=bool(policy.managed_pools)),
            path=(),
            diagnostics=report,
        )
    diagnostics.check()
    for warning in diagnostics.warnings():
        # the policy's own were reported when it was read
        if warn is not None and warning not in before.warnings():
            warn(warning)
    return msgspec.structs.replace(policy, options=options)


def _node(text: str, place: str) -> Node:
    """Parse a list or a mapping in YAML's flow form, or take the text as it is; raises
    BadInput for invalid YAML."""
    return (
        read(text, place=place)
        if text[:1] in {"[", "{"}
        else Scalar(text, plain=False, line=1, column=1)
    )
