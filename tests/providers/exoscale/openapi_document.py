"""Exoscale's OpenAPI document as the vendor's package ships it, with the known deviations."""

from __future__ import annotations

import importlib.resources
from functools import cache

import msgspec

from infra.emulators.exoscale.server import ROOT
from tests.providers.openapi import Checker, Document


@cache
def document() -> Document:
    """Returns the document, compiled once per process. One rule is relaxed: an Instance
    Pool's size may be 0, because the hidden pool of a Nodepool that was scaled to 0 (which
    is allowed) has that size."""
    found = msgspec.json.decode(
        (importlib.resources.files("exoscale") / "openapi.json").read_bytes()
    )
    found["components"]["schemas"]["instance-pool"]["properties"]["size"]["exclusiveMinimum"] = (
        False
    )
    return Document(found, prefix=ROOT)


def checker() -> Checker:
    """A new one for each test."""
    return Checker(document())
