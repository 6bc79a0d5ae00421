"""Writes what an operator did to the journal of the cluster, with who did it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from chalicelib.command.caller_identity import caller
from chalicelib.command.output import warn

if TYPE_CHECKING:
    from chalicelib.store import Store

Facts = Mapping[str, str | int | float | bool]


def note(
    store: Store, cluster: str, kind: str, facts: Facts, *, group: str = "", operation: str = "", at: float = 0.0
) -> None:
    """Append one line. facts: see JournalEntry; `by` is added unless it is given. at: epoch seconds; now, if not given.
    The act is done already, so a journal that cannot be written is a warning."""
    from chalicelib.store import JournalEntry
    from chalicelib.store.errors import StoreError

    entry = JournalEntry(
        at=at or time.time(),
        kind=kind,
        group=group,
        operation=operation,
        facts={"by": facts.get("by") or caller(), **facts},
    )
    try:
        store.journal.append(cluster, entry)
    except StoreError as error:
        warn(f"{cluster}: done ({kind}), but the journal could not be written: {error}")
