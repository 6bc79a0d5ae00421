"""random: draws one option; the draw depends only on the seed and the groups' ids.

Each group gets a number computed from the seed and its id, and the lowest wins. The order of the options therefore does
not matter, and dropping a group changes nothing among the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from chalicelib.plan.scale_up.option import Option


def random_option(options: Sequence[Option], seed: int) -> Option:
    """Return one of the options; over all seeds each is equally likely."""
    return min(options, key=lambda option: (_lot(seed, option.group), option.group))


def _lot(seed: int, group: str) -> bytes:
    return blake2b(f"{seed}\n{group}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
