"""The three changes that are requested of CCE, and the only module of the package that builds one.

Each has a form that would delete every node of a pool: a scale request without its total, a change of settings without
the guard, a deletion that lowers the total not at all or by more than one. None of these forms can be built here, and
no other module may build a change (tests verify both).
"""

from __future__ import annotations

import msgspec

from chalicelib.providers.errors import InvalidRequest
from chalicelib.providers.http import VendorRequest
from chalicelib.providers.huaweicloud.provider_ids import checked

MOST = 100_000  # nodes; a larger total is an error
_LONGEST_NAME = 128


class _Scale(msgspec.Struct, frozen=True, rename="camel"):
    """No field has a default, so a body without its total cannot be built."""

    desired_node_count: int
    scale_groups: tuple[str]


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    spec: _Scale


def scale_call(root: str, headers: dict[str, str], pool: str, total: int, group: str, *, zero: bool) -> VendorRequest:
    """Return the request that sets the whole pool's total by that scale group. Raises InvalidRequest.

    total: 1 to MOST, or 0 only with zero=True, which states the intention. Sent once: without a response the caller
    reads the pool again.
    """
    if isinstance(total, bool) or not isinstance(total, int) or not (0 if zero else 1) <= total <= MOST:
        raise InvalidRequest(f"a total of {total!r} nodes is not asked for: it would delete nodes", code="Total")
    if not group or len(group) > _LONGEST_NAME or not group.isprintable():
        raise InvalidRequest(f"{group[:80]!r} is not the name of a scale group", code="Group")
    body = msgspec.json.encode(_Request("NodePool", "v3", _Scale(total, (group,))))
    return VendorRequest("POST", f"{root}/nodepools/{checked(pool, 'node pool')}/operation/scale", headers, {}, body)


def delete_call(root: str, headers: dict[str, str], node: str) -> VendorRequest:
    """Return the request that deletes this node and lowers its pool's total by one. Raises InvalidRequest.

    It has no query: with `nodepoolScaleDown=NoScaleDown` the total would stay, and CCE would buy another node. Sent
    once."""
    return VendorRequest("DELETE", f"{root}/nodes/{checked(node, 'node')}", headers)
