"""Exoscale's OpenAPI document as the vendor's own package brings it along, and what is known to be otherwise."""

from __future__ import annotations

import importlib.resources
from functools import cache

import msgspec

from infra.emulators.exoscale.routes import ROOT
from tests.contract.openapi import Checker, Document


@cache
def document() -> Document:
    """It, compiled once for all tests of a process. One thing is read more widely than it is written: an Instance
    Pool's size may be 0, since the hidden pool of a Nodepool that was scaled to 0 (which is allowed) has no other."""
    found = msgspec.json.decode((importlib.resources.files("exoscale") / "openapi.json").read_bytes())
    found["components"]["schemas"]["instance-pool"]["properties"]["size"]["exclusiveMinimum"] = False
    return Document(found, prefix=ROOT)


def checker() -> Checker:
    """A fresh one."""
    return Checker(document())
