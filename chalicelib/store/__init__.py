"""Persistent state in DynamoDB. `Store` is the entry point; its errors are in errors.py."""

from __future__ import annotations

from chalicelib.store.journal import JournalEntry
from chalicelib.store.leases import Lease
from chalicelib.store.policies import StoredPolicy
from chalicelib.store.store import Store

__all__ = ["JournalEntry", "Lease", "Store", "StoredPolicy"]
