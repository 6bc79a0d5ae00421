"""Taints outside of any operation: soft ones on and off, hard ones whose operation is over.

They follow from what the pass has seen, so nothing of it is persisted: what could not be done is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chalicelib.model.plan import Mark
from chalicelib.model.policy import Options

if TYPE_CHECKING:
    from chalicelib.kube.client import Cluster


def apply(marks: Sequence[Mark], cluster: Cluster, options: Options, clock: Callable[[], float]) -> tuple[Mark, ...]:
    """Write them within the limits of the options; those that were written."""
    del marks, cluster, options, clock
    return ()
