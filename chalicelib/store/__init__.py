"""The state of all clusters in two DynamoDB tables.

Here: `Store`, its rows and its errors. Not here: what the state means (model) and when it changes
(reconciler, operations).
"""

from __future__ import annotations

from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import Lease
from chalicelib.store.policies import StoredPolicy
from chalicelib.store.store import Store

__all__ = ["JournalEntry", "Lease", "Store", "StoredPolicy"]
