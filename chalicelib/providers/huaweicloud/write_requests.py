"""The two changes that are asked of CCE, and the only module of the package that writes one (huaweicloud-cce.md B4).

Each has a way to lose every node of a pool: a scale request without its total, and a deletion that lowers no total or
more than one. Neither can be written here, and no other module can write one (tests hold both).
"""

from __future__ import annotations

import msgspec

from chalicelib.providers.errors import InvalidRequest
from chalicelib.providers.http import VendorRequest
from chalicelib.providers.huaweicloud.ids import checked

MOST = 100_000  # nodes; a total beyond it is a mistake
_LONGEST_NAME = 128


class _Scale(msgspec.Struct, frozen=True, rename="camel"):
    """No field has a default: a body without its total cannot be made."""

    desired_node_count: int
    scale_groups: tuple[str]


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    spec: _Scale


def scale_call(root: str, headers: dict[str, str], pool: str, total: int, group: str, *, zero: bool) -> VendorRequest:
    """Make the whole pool's total this, by that scale group. total: 1 to MOST, or 0 where zero says that this is meant.

    Sent once: who hears nothing reads the pool again. Raises InvalidRequest.
    """
    if isinstance(total, bool) or not isinstance(total, int) or not (0 if zero else 1) <= total <= MOST:
        raise InvalidRequest(f"a total of {total!r} nodes is not asked for: it would delete nodes", code="Total")
    if not group or len(group) > _LONGEST_NAME or not group.isprintable():
        raise InvalidRequest(f"{group[:80]!r} is not the name of a scale group", code="Group")
    body = msgspec.json.encode(_Request("NodePool", "v3", _Scale(total, (group,))))
    return VendorRequest("POST", f"{root}/nodepools/{checked(pool, 'node pool')}/operation/scale", headers, {}, body)


def delete_call(root: str, headers: dict[str, str], node: str) -> VendorRequest:
    """Delete this node and lower its pool's total by one. Without a query: with `nodepoolScaleDown=NoScaleDown` the
    total would stay, and CCE would buy another. Sent once. Raises InvalidRequest."""
    return VendorRequest("DELETE", f"{root}/nodes/{checked(node, 'node')}", headers)
