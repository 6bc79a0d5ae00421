"""A separate row for carried-over data that is too large for the lease's row.

The lease's row is written three times a minute, and DynamoDB charges the whole row each time. Data that changes with
every pass is therefore stored in the lease's row while it is small, and data that seldom changes is stored here and
written only when it does. `joined` separates the two parts. A value that is not joined is stored in one of the two
rows, depending on its size.

The lease's row takes precedence: a release before this row knows only the lease's row, writes everything into it, and
its value is then the newer one. A process that dies between the two writes leaves an older value in force, which costs
the counts of one pass.
"""

from __future__ import annotations

from chalicelib.store.table_client import ConditionFailed, Table
from chalicelib.store.tables import LEFT, LeftRow

LARGEST_INSIDE = 512
"""Bytes of `left` in the lease's row. Its keys and its other attributes are 400 bytes at most while passes succeed, so
that the row stays within 1 KB."""

_JOINED = b"\x02"  # no other encoding of the data begins with it
_DIGITS = 2


def joined(often: bytes, seldom: bytes) -> bytes:
    """Join two parts into one value. often: data that changes with every pass, LARGEST_INSIDE bytes at most without the
    prefix; seldom: the rest."""
    return _JOINED + len(often).to_bytes(_DIGITS, "big") + often + seldom


def parts(left: bytes) -> tuple[bytes, bytes] | None:
    """Return the two parts of a value that `joined` made; None for any other."""
    if not left.startswith(_JOINED):
        return None
    start = len(_JOINED) + _DIGITS
    end = start + int.from_bytes(left[len(_JOINED) : start], "big")
    return left[start:end], left[end:]


def stored(left: bytes) -> tuple[bytes, bytes | None]:
    """Return the content of the lease's row, b"" for none, and of the separate row, None to keep it unchanged."""
    both = parts(left)
    if both is not None:
        return _JOINED + both[0], both[1]
    return (left, None) if len(left) <= LARGEST_INSIDE else (b"", left)


def needs_both(inside: bytes) -> bool:
    """Return whether the lease's row has only a part, or nothing."""
    return not inside or inside.startswith(_JOINED)


def whole(inside: bytes, apart: bytes) -> bytes:
    """Return the whole value from the content of the two rows."""
    return joined(inside.removeprefix(_JOINED), apart) if inside.startswith(_JOINED) else inside or apart


def read(table: Table, cluster: str) -> bytes:
    """Return the row's content, b"" where there is none."""
    row = table.get(LeftRow, cluster, LEFT)
    return (row.left or b"") if row is not None else b""


def write(table: Table, cluster: str, left: bytes, token: int) -> None:
    """Replace the row, unless a later holder of the lease has written it. token: the lease's."""
    nobody_wrote_it = LeftRow.token.does_not_exist()
    an_earlier_pass_did = LeftRow.token <= token
    try:
        table.write(table.put(LeftRow(cluster, LEFT, left=left, token=token), nobody_wrote_it | an_earlier_pass_did))
    except ConditionFailed:
        return
