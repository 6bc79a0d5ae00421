"""spec.nodeGroups: bounds and priorities of groups."""

from typing import Annotated

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import closest, quote
from chalicelib.policy.schema import listed_sections
from chalicelib.policy.value_types import scalar, text, whole

PROVIDER_NAMES = ("alicloud", "cherryservers", "clusterapi", "exoscale", "huaweicloud")
"""The providers, whose settings need not be loaded for a group."""


def known_provider(name: str) -> str:
    """Return the remedy for a provider's name that is none."""
    near = closest(name, PROVIDER_NAMES)
    return f"did you mean {near}?" if near else f"known: {', '.join(PROVIDER_NAMES)}"


def _provider_name(value: str) -> str:
    """Parse a provider's name; raises BadInput."""
    if value in PROVIDER_NAMES:
        return value
    raise BadInput("", f"{quote(value)} is not a provider", known_provider(value))


PROVIDER = scalar(
    "provider", _provider_name, "a provider's name", form=lambda: {"enum": list(PROVIDER_NAMES)}
)


class GroupPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of spec.nodeGroups."""

    provider: Annotated[
        str,
        PROVIDER,
        "Which of spec.providers owns the group.",
    ]
    id: Annotated[
        str,
        text("a node group's id", r"[^\s\x00-\x1f\x7f]{1,512}"),
        "The id the provider knows the group by.",
    ]
    min: Annotated[
        int | None, whole(), "Never fewer nodes; the provider's own minimum if not given."
    ] = None
    max: Annotated[
        int | None, whole(), "Never more nodes; the provider's own maximum if not given."
    ] = None
    priority: Annotated[
        int,
        whole(-(2**31)),
        "For the priority expander, if the cluster has no ConfigMap "
        "cluster-autoscaler-priority-expander: the highest is chosen.",
    ] = 0


NODE_GROUPS = listed_sections(
    GroupPolicy, "group", 10_000, "{provider: NAME, id: ID, min: 1, max: 10}"
)
