"""Overrides options of a policy from the command line: `--option scaleDownUnneededTime=5m`, for experiments.

It uses the same tables and messages: an override is refused or warned about exactly as in a document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chalicelib.model.policy import Policy
from chalicelib.policy.diagnostics import Diagnostics
from chalicelib.policy.options import Read, attribute, check_options, check_prices, find_row, tell
from chalicelib.policy.providers import without_prices
from chalicelib.policy.value_types import UNSET
from chalicelib.policy.yaml_document import Node, Scalar, read


def with_options(
    policy: Policy, settings: Sequence[str], *, place: str = "--option", warn: Callable[[str], None] | None = None
) -> Policy:
    """Apply `NAME=VALUE` settings over the policy's own; raises BadInput.

    VALUE is what a document would have after the colon: `scaleDownUnneededTime=5m`, `startupTaint=[a, b]`. The last of
    several for one name applies. warn: called for each option that is not in force.
    """
    report, before = Diagnostics(place), Diagnostics(place)
    in_force: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            report.problem((name,), "has no value", "write NAME=VALUE, such as scaleDownUnneededTime=5m")
            continue
        row = find_row(name.strip(), (), report)
        if row is None:
            continue
        got = row.kind.read(_node(value, f"{place} {row.name}"), (row.name,), report)
        if got is UNSET:
            continue
        if attribute(row):
            in_force[attribute(row)] = got
        else:
            tell(row, got, (row.name,), report)
    options = msgspec.structs.replace(policy.options, **in_force)
    check_options(Read(_as_read(policy)), (), before)
    check_options(Read({**_as_read(policy), **in_force}), (), report)
    for chain, diagnostics in ((policy.options.expander, before), (options.expander, report)):
        check_prices(
            chain,
            listed=policy.prices is not None,
            unpriced=without_prices(policy.providers),
            path=(),
            diagnostics=diagnostics,
        )
    report.check()
    for text in report.warnings():
        if warn is not None and text not in before.warnings():  # the policy's own were reported when it was read
            warn(text)
    return msgspec.structs.replace(policy, options=options)


def _as_read(policy: Policy) -> dict[str, Any]:
    """Return the policy's own options, so that both together are checked."""
    return msgspec.structs.asdict(policy.options)


def _node(value: str, place: str) -> Node:
    """Parse a list or a mapping in YAML's flow form, or take the text as it is; raises BadInput for invalid YAML."""
    return read(value, place=place) if value[:1] in {"[", "{"} else Scalar(value, plain=False, line=1, column=1)
