"""Loads a policy from text: read, validate, and only then build.

The last valid version stays in force while a document is invalid, so this module never returns a
partial policy: the result is either all mistakes, or a Policy that all other code may rely on.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.admission import Admission, check_admission
from chalicelib.policy.diagnostics import Diagnostics
from chalicelib.policy.document import ROOT, SPEC
from chalicelib.policy.options import OptionValues
from chalicelib.policy.providers import Ask, PartialPolicy, not_reported, provider_mistakes
from chalicelib.policy.schema import built, read_section
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.validation import CHECKS
from chalicelib.policy.yaml_document import read

_STORED_EMPTY: dict[str, type[msgspec.Struct]] = {
    "webhook": Webhook,
    "max_disruption": MaxDisruption,
    "scale_up": ScaleUp,
    "options": Options,
}
"""An absent section is an empty object and not the default itself, so that stored policies keep
their bytes."""


def load(
    text: str, *, place: str, admission: Admission | None = None, ask: Ask | None = None
) -> tuple[Policy, tuple[str, ...]]:
    """Return (policy, warnings) for one policy document. place: the file's name, for messages.
    admission: the document's purpose and its deployment; None: do not check what a deployment
    permits. ask: the providers' validation; None: the providers are not asked.

    Raises InputErrors with every mistake, in the order of the text: `policy.yaml:14:
    spec.nodeGroups[1].max`. The providers' mistakes come last, without a line.
    """
    try:
        root = read(text, place=place)
    except BadInput as error:
        raise InputErrors((error,)) from None
    diagnostics = Diagnostics(place, root)
    values = read_section(ROOT, root, (), diagnostics) or {}
    spec, name = values.get("spec"), (values.get("metadata") or {}).get("name", "")
    mistakes: tuple[BadInput, ...] = ()
    if spec is not None:
        partial = PartialPolicy(
            spec,
            spec.get("kubernetes"),
            spec.get("providers"),
            spec.get("node_groups", ()),
            spec.get("options", OptionValues()),
        )
        for check in CHECKS:
            check(partial, diagnostics)
        mistakes = (
            provider_mistakes(partial, root, name, ask, diagnostics) if ask is not None else ()
        )
        if admission is not None:
            check_admission(partial, name, admission, diagnostics)
    diagnostics.check(not_reported(mistakes, place, diagnostics))
    return _policy(name, values["spec"]), diagnostics.warnings()


def digest(text: str) -> str:
    """Return the SHA-256 of the text with normalised line ends: equal
    digests mean the same document."""
    return hashlib.sha256("\n".join(text.splitlines()).encode("utf-8", "surrogatepass")).hexdigest()


def _policy(name: str, spec: dict[str, Any]) -> Policy:
    """Build the policy after all checks, so no required value can be missing."""
    absent: dict[str, Any] = {
        attribute: struct() for attribute, struct in _STORED_EMPTY.items() if attribute not in spec
    }
    return Policy(name=name, **built(SPEC, spec), **absent)
