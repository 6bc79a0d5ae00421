"""Serialises a policy to a document: the values that differ from the defaults, and always the mode.

For generated documents (`outscaler import`, `-o yaml`); comments and order of a hand-written document are in its text,
which the store keeps. Reading the result gives the same policy except for the version, which the store assigns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from chalicelib.model.notification import Notifications
from chalicelib.model.policy import Metrics, NodePrices, Options, Policy
from chalicelib.policy.document import API_VERSION, KIND, SPEC
from chalicelib.policy.notifications import NOTIFICATIONS
from chalicelib.policy.option_definitions import Status
from chalicelib.policy.options import ROWS, attribute
from chalicelib.policy.prices import PRICES
from chalicelib.policy.providers import PROVIDERS
from chalicelib.policy.schema import show_section


def dump(policy: Policy) -> str:
    """Return the document as YAML text."""
    spec: dict[str, Any] = {}
    for field in SPEC.fields:
        value = getattr(policy, field.attribute)
        shown = _SPECIAL[field.key](value) if field.key in _SPECIAL else field.kind.show(value)
        if shown or field.required:
            spec[field.key] = shown
    if not policy.webhook.secret:
        spec.pop("webhook", None)
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": policy.name}, "spec": spec}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def _options(options: Options) -> dict[str, Any]:
    defaults = Options()
    in_force = {row.name: (row, attribute(row)) for row in ROWS.values() if row.status is Status.IN_FORCE}
    return {
        name: row.kind.show(getattr(options, lands))
        for name, (row, lands) in in_force.items()
        if getattr(options, lands) != getattr(defaults, lands)
    }


def _prices(prices: NodePrices | None) -> dict[str, Any]:
    shown = show_section(PRICES, prices) if prices is not None else {}
    return {key: value for key, value in shown.items() if value != {}}


def _providers(providers: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {name: _settings(name, settings) for name, settings in providers.items()}


def _settings(name: str, settings: dict[str, str]) -> dict[str, Any]:
    table = PROVIDERS[name].section
    shows = {field.key: field.kind.show for field in table.fields} if table else {}
    return {key: shows.get(key, str)(value) for key, value in settings.items()}


def _notifications(notifications: Notifications | None) -> dict[str, Any]:
    return show_section(NOTIFICATIONS, notifications) if notifications is not None else {}


def _metrics(metrics: Metrics) -> str:
    return "" if metrics is Metrics.SUMMARY else metrics.value


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "metrics": _metrics,
    "notifications": _notifications,
    "options": _options,
    "prices": _prices,
    "providers": _providers,
}
