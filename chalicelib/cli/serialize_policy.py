"""Serialises a policy to a document: the values that differ from the defaults, and always the mode.

For generated documents (`outscaler import`, `-o yaml`); comments and order of a hand-written
document are in its text, which the store keeps. Reading the result gives the same policy except for
the version, which the store assigns.
"""

from __future__ import annotations

from typing import Any

import yaml

from chalicelib.policy.document import API_VERSION, KIND, SPEC
from chalicelib.policy.option_tables import Status
from chalicelib.policy.options import ROWS, attribute
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.schema import section_of, show_section
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Metrics, Policy
from chalicelib.policy.settings.node_prices import NodePrices

_EMPTY_ASKS = frozenset({"nodeLifecycle", "spot"})
"""Sections that ask for something although nothing is in them."""


def dump(policy: Policy) -> str:
    """Return the document as YAML text."""
    special = _special_sections(policy)
    spec: dict[str, Any] = {}
    for field in SPEC.fields:
        value = getattr(policy, field.attribute)
        if value is None:
            continue
        shown = special[field.key] if field.key in special else field.kind.show(value)
        if shown or field.required or field.key in _EMPTY_ASKS:
            spec[field.key] = shown
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": policy.name},
        "spec": spec,
    }
    return yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )


def _special_sections(policy: Policy) -> dict[str, Any]:
    """Return the sections that their field's kind alone cannot show."""
    prices = (
        show_section(section_of(NodePrices), policy.prices) if policy.prices is not None else {}
    )
    providers = policy.providers.items()
    sections: dict[str, Any] = {
        "metrics": "" if policy.metrics is Metrics.SUMMARY else policy.metrics.value,
        "options": _options(policy.options),
        "prices": {key: value for key, value in prices.items() if value != {}},
        "providers": {name: _settings(name, settings) for name, settings in providers},
    }
    if not policy.webhook.secret:
        sections["webhook"] = {}
    return sections


def _options(options: Options) -> dict[str, Any]:
    defaults = Options()
    shown: dict[str, Any] = {}
    for row in ROWS.values():
        if row.status is not Status.IN_FORCE:
            continue
        name = attribute(row)
        value = getattr(options, name)
        if value != getattr(defaults, name):
            shown[row.name] = row.kind.show(value)
    return shown


def _settings(provider: str, settings: dict[str, str]) -> dict[str, Any]:
    kinds = {field.key: field.kind for field in vendor_section(PROVIDERS[provider]).fields}
    return {key: kinds[key].show(text) if key in kinds else text for key, text in settings.items()}
