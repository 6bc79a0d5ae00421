"""The document's own keys, and the JSON schema of the whole.

The sections of spec are declared in settings/, options in option_tables.py, the providers' settings
in vendors/. Every key is either accepted or reported.
"""

from __future__ import annotations

from typing import Any

from chalicelib.policy.options import build_options, options_form, read_options
from chalicelib.policy.providers import providers_form, read_providers
from chalicelib.policy.schema import Field, Section, fields_of, nested, section, section_form
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.value_types import DNS_LABEL, ValueType, choice

API_VERSION = "outscaler.dev/v1"
KIND = "Cluster"

METADATA = section(
    Field("name", DNS_LABEL, "The cluster's name in every command, route and table.", required=True)
)

_WITH_OWN_TABLES = (
    Field(
        "providers",
        ValueType("mapping", read_providers, form=providers_form),
        "Providers of its node groups, each with its settings.",
        required=True,
        example="providers: {clusterapi: {}}",
    ),
    Field(
        "options",
        ValueType("options", read_options, form=options_form, build=build_options),
        "Upstream's flags, in lowerCamelCase.",
    ),
)
_FIELDS = {field.key: field for field in (*fields_of(Policy), *_WITH_OWN_TABLES)}
SPEC = Section(tuple(_FIELDS[key] for key in Policy.document_order))

ROOT = section(
    Field(
        "apiVersion",
        choice((API_VERSION,)),
        f"Always {API_VERSION}.",
        required=True,
        example=f"apiVersion: {API_VERSION}",
    ),
    Field("kind", choice((KIND,)), f"Always {KIND}.", required=True, example=f"kind: {KIND}"),
    Field(
        "metadata",
        nested(METADATA),
        "The cluster's name.",
        required=True,
        example="metadata: {name: NAME}",
    ),
    Field(
        "spec",
        nested(SPEC),
        "Everything else.",
        required=True,
        example="spec with kubernetes and providers",
    ),
    refused={
        field.key: ("belongs under spec", f"indent it, as spec.{field.key}")
        for field in SPEC.fields
    },
)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a document, for editors that complete and check
    YAML while an author types.

    It may accept a document that `outscaler validate` refuses, because rules across keys are not in
    it; it refuses no document that validate accepts.
    """
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "title": "Outscaler policy", **section_form(ROOT)}
