"""What a watcher in a cluster posts to the webhook: sealed bytes behind one line
that says where they belong.

The webhook stores the bytes as they come. chalicelib/cluster/list_archive.py makes and joins them.
"""

from __future__ import annotations

import base64
import re

import msgspec

from chalicelib.model.errors import BadInput

WATCHED = "watched"
"""The folder of posts in the place of shared lists."""
PART = 2_500_000
"""Bytes of one part of a base: Lambda takes requests of 6 MB, and base64 adds a third."""
MOST_PARTS = 16
LARGEST_POST = 4_000_000
"""Bytes of the body of a post."""
MAGIC = b"outscaler-watcher/1 "
_HEAD = re.compile(
    re.escape(MAGIC)
    + (
        rb"(?P<kind>base|changes) (?P<base>[0-9a-f]{32}) (?P<number>[0-9]{1,2}) "
        rb"(?P<wake>-|[0-9]\.[0-9])\n"
    )
)
_LONGEST_HEAD = 80
_NUMBERS = {b"base": range(MOST_PARTS), b"changes": range(1, MOST_PARTS + 1)}


class WatcherPost(msgspec.Struct, frozen=True):
    """What a watcher posts. base: the name of the base. number: of the part of a base; for changes,
    how many parts the base has. wake: seconds after which a pass is to begin, below 10; None where
    the next one can wait. data: sealed bytes."""

    kind: str
    base: str
    number: int
    data: bytes
    wake: float | None = None

    def body(self) -> bytes:
        """Return the body of the request: a line and base64, because API
        Gateway takes no other bytes."""
        wake = "-" if self.wake is None else f"{self.wake:.1f}"
        return (
            MAGIC
            + f"{self.kind} {self.base} {self.number} {wake}\n".encode()
            + base64.b64encode(self.data)
        )


def read_post(body: bytes) -> WatcherPost:
    """Return the post in a body. Raises BadInput."""
    post = _HEAD.match(body[:_LONGEST_HEAD])
    if post is None or int(post["number"]) not in _NUMBERS[post["kind"]]:
        raise BadInput(
            "body",
            "is not a valid post of outscaler-watcher/1",
            "run the watcher of the deployed release",
        )
    try:
        data = base64.b64decode(body[post.end() :], validate=True)
    except ValueError:
        raise BadInput("body", "is not base64 after its first line", "post it again") from None
    kind, base = post["kind"].decode(), post["base"].decode()
    wake = None if post["wake"] == b"-" else float(post["wake"])
    return WatcherPost(kind, base, int(post["number"]), data, wake)


def parts_of(data: bytes) -> list[bytes]:
    """Return a base in parts. Raises BadInput for more than MOST_PARTS."""
    parts = [data[at : at + PART] for at in range(0, len(data), PART)]
    if len(parts) > MOST_PARTS:
        raise BadInput(
            "cluster",
            f"its lists have {len(data)} bytes",
            "remove the watcher and spec.kubernetes.watcherSecret",
        )
    return parts
