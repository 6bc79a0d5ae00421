"""Checks of what the deployment keeps: secrets and the volume of each pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chalicelib.command.doctor.context import Check, DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.command.doctor.secret_forms import FORMS
from chalicelib.command.doctor.webhook import check_webhook
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.policy.secret_names import named_by

MONTH = 30 * 86400.0
POD, NODE = 7_900, 25_000
"""Bytes of a pod and of a node in a list, as measured with a real control plane."""
MUCH = 2**40
"""Bytes a month from which the volume of lists is a warning."""
_PRICE = 0.09  # USD per GiB that leaves a cloud's network, a common list price


def check_secrets(context: DoctorContext) -> Sequence[Finding]:
    """DR27: secrets that are missing, empty, or of a form that is not read. No value is in a finding."""
    return list(_secrets(context))


def _secrets(context: DoctorContext) -> Iterator[Finding]:
    for path, name, _ in named_by(context.policy):
        try:
            text = context.read_secret(name)
        except BadInput as error:
            fix = "give it with --secret NAME=FILE, or --table to read the deployment's"
            yield _finding(Severity.UNASKED, f"secret {name} was not read: {error.problem}", fix, path)
            continue
        except OutscalerError as error:
            yield _finding(Severity.ERROR, f"secret {name} cannot be read: {error}", _create(name), path)
            continue
        if not text.strip():
            yield _finding(Severity.ERROR, f"secret {name} is empty", _create(name), path)
            continue
        try:
            FORMS[path](context.policy, text, f"secret {name}")
        except BadInput as error:
            place = error.place if name in error.place else f"secret {name}"
            yield _finding(Severity.ERROR, f"{place}: {error.problem}", error.remedy or _create(name), path)


def _create(name: str) -> str:
    return f"aws secretsmanager put-secret-value --secret-id {name} --secret-string file://FILE"


def _finding(severity: Severity, message: str, fix: str, path: Sequence[str]) -> Finding:
    place = ".".join(("spec", *path))
    return Finding(id="DR27", severity=severity, subject="secrets", message=message, fix=fix, evidence={"path": place})


def check_volume(context: DoctorContext) -> Sequence[Finding]:
    """DR29: bytes that passes read, estimated from the numbers of pods and nodes."""
    snapshot = context.seen
    size = len(snapshot.pods) * POD + len(snapshot.nodes) * NODE
    monthly = size * MONTH / context.policy.scan_interval
    if monthly < MUCH:
        return ()
    text = (
        f"a pass reads about {size / 2**20:.0f} MiB ({len(snapshot.pods)} pods): every "
        f"{context.policy.scan_interval:.0f} s that is {monthly / 2**40:.1f} TiB a month"
    )
    return (
        Finding(
            id="DR29",
            severity=Severity.WARNING,
            subject="volume",
            message=text,
            fix="raise scanInterval and use the webhook; at 0.09 USD a GiB this is about "
            f"{monthly / 2**30 * _PRICE:,.0f} USD where traffic is charged",
            evidence={"bytes": size, "bytesPerMonth": round(monthly)},
        ),
    )


DEPLOYMENT_CHECKS: tuple[Check, ...] = (
    Check(("DR27",), "secrets", check_secrets),
    Check(("DR28",), "webhook", check_webhook),
    Check(("DR29",), "volume", check_volume),
)
"""Checks of the deployment, in the order of their results."""
