"""All node groups of a cluster, whatever cloud they are on: one provider that fails is a gap and stops no other."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.errors import MALFORMED
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import Gap
from chalicelib.providers.base import Provider
from chalicelib.providers.errors import ProviderError

_SHOWN = 300    # characters of an unexpected error


def observe(providers: Sequence[Provider], nodes: Sequence[Node]) -> tuple[tuple[NodeGroup, ...], tuple[Gap, ...]]:
    """Groups and gaps of every provider, in the order of the providers."""
    groups: list[NodeGroup] = []
    gaps: list[Gap] = []
    for provider in providers:
        try:
            seen = provider.observe(nodes)
        except ProviderError as error:
            gaps.append(Gap(kind=f"provider/{provider.name}", detail=f"{error.cls}: {error.message}",
                            weakens=("all node groups of this provider",)))
            continue
        except MALFORMED as error:
            # Each provider isolates its objects; what slips through must not cost the other providers their pass.
            gaps.append(Gap(kind=f"provider/{provider.name}", weakens=("all node groups of this provider",),
                            detail=f"an answer could not be understood: {type(error).__name__}: {str(error)[:_SHOWN]}"))
            continue
        groups += seen.groups
        gaps += seen.gaps
    return tuple(groups), tuple(gaps)
