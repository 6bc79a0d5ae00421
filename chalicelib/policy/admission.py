"""Checks what a deployment lets a policy name: no local files, no foreign hosts, no
secrets of other clusters.

The functions carry out a policy with permissions that its author does not have. A document is
therefore checked when it is applied, and again whenever a function reads it: it may have been
stored before a rule existed, or without this program.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import msgspec

from chalicelib.model.policy_permissions import Deployment
from chalicelib.net.vendor_hosts import FILE_PROBLEM, FILE_REMEDY, mistakes
from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.providers import SPEC, PartialPolicy
from chalicelib.policy.secret_names import named_in, never, problem, remedy


class Purpose(Enum):
    """STORED: the document is applied, or read by a function. VALIDATED: an operator asks whether
    it could be applied. PLANNED: a command reads it together with files of the workstation."""

    STORED = auto()
    VALIDATED = auto()
    PLANNED = auto()


class Admission(msgspec.Struct, frozen=True):
    """cluster: the name that the document is stored under; empty to use the name in the
    document."""

    deployment: Deployment
    purpose: Purpose = Purpose.STORED
    cluster: str = ""


def check_admission(
    partial: PartialPolicy, name: str, admission: Admission, diagnostics: Diagnostics
) -> None:
    """Report what the deployment does not permit. name: the cluster's, as in the document."""
    for check in _CHECKS:
        check(partial, admission.cluster or name, admission, diagnostics)


def _files(partial: PartialPolicy, _: str, admission: Admission, diagnostics: Diagnostics) -> None:
    paths: list[Path] = []
    if "kubeconfig_file" in (partial.kubernetes or {}):
        paths.append((*SPEC, "kubernetes", "kubeconfigFile"))
    for provider, settings in (partial.providers or {}).items():
        paths += [
            (*SPEC, "providers", provider, key) for key in sorted(settings) if key.endswith("File")
        ]
    for path in paths:
        if admission.purpose is Purpose.STORED:
            diagnostics.problem(path, FILE_PROBLEM, FILE_REMEDY)
        elif admission.purpose is Purpose.VALIDATED:
            diagnostics.warn(path, f"outscaler apply refuses this: it {FILE_PROBLEM}")


def _hosts(partial: PartialPolicy, _: str, admission: Admission, diagnostics: Diagnostics) -> None:
    # files are reported above
    deployment = msgspec.structs.replace(admission.deployment, files=True)
    for provider, settings in (partial.providers or {}).items():
        for key, what, instead in mistakes(provider, settings, deployment):
            diagnostics.problem((*SPEC, "providers", provider, key), what, instead)


def _secrets(
    partial: PartialPolicy, cluster: str, admission: Admission, diagnostics: Diagnostics
) -> None:
    if admission.purpose is Purpose.PLANNED:
        return  # a command reads files instead of secrets
    deployment = admission.deployment
    certain = admission.purpose is Purpose.STORED or deployment.prefix_known
    notice = (partial.spec.get("notifications") or {}).get("webhook") or {}
    named = named_in(
        partial.kubernetes or {},
        partial.providers or {},
        partial.spec.get("webhook") or {},
        notice.get("secret", ""),
    )
    for below, name, use in named:
        path, uses = (*SPEC, *below), (use,)
        what = problem(name, cluster, uses, deployment) if cluster else never(name, uses)
        instead = remedy(cluster or "CLUSTER", uses, deployment)
        if what and (certain or never(name, uses)):
            diagnostics.problem(path, what, instead)
        elif what:
            diagnostics.warn(
                path,
                (
                    f"outscaler apply refuses this unless the deployment shares it: it {what}; "
                    f"{instead}"
                ),
            )


_CHECKS: tuple[Callable[[PartialPolicy, str, Admission, Diagnostics], None], ...] = (
    _files,
    _hosts,
    _secrets,
)
