"""random: one option by lot, where the lots depend on the seed and the groups' ids alone.

Each group has a number made of the seed and its id, and the lowest is drawn. So the order of the options does not
matter, and a group that drops out changes nothing among the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from chalicelib.plan.scale_up.option import Option


def random_option(options: Sequence[Option], seed: int) -> Option:
    """One of the options, each as likely as the next over all seeds."""
    return min(options, key=lambda option: (_lot(seed, option.group), option.group))


def _lot(seed: int, group: str) -> bytes:
    return blake2b(f"{seed}\n{group}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
