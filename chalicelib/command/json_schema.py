"""The JSON schema of a policy document, for editors that complete and check YAML while an author types.

It is made from the tables that read a document. It may accept a document that `outscaler validate` refuses, because
rules across keys are not in it; it refuses no document that validate accepts.
"""

from __future__ import annotations

from typing import Any

from chalicelib.policy.document import ROOT
from chalicelib.policy.schema import section_form

DRAFT = "http://json-schema.org/draft-07/schema#"


def json_schema() -> dict[str, Any]:
    """Return the schema as data for JSON."""
    return {"$schema": DRAFT, "title": "Outscaler policy", **section_form(ROOT)}
