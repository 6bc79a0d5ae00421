"""Stores policies as releases before the policy table did: in the state
table, under the same keys.
"""

from __future__ import annotations

from typing import Any

from chalicelib.policy.load import digest
from chalicelib.store import Store
from chalicelib.store.tables import POLICIES, POLICY, PolicyRow


def store_as_before(store: Store, name: str, *texts: str) -> None:
    """Stores versions 1, 2, … of a cluster's policy; the last one is in force."""
    table = store.table
    for version, text in enumerate(texts, start=1):
        values: dict[str, Any] = {
            "name": name,
            "version": version,
            "text": text,
            "digest": digest(text),
            "stored_at": 1_790_000_000.0,
        }
        table.write(table.put(PolicyRow(name, f"{POLICY}{version:010d}", **values)))
        table.write(table.put(PolicyRow(POLICIES, name, **values)))
