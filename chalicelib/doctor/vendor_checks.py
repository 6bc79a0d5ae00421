"""Checks of the vendors' accounts and groups, in the order of their results."""

from __future__ import annotations

from chalicelib.doctor.context import Check

VENDOR_CHECKS: tuple[Check, ...] = ()
