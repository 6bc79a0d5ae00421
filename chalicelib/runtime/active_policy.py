"""Turns a stored document into the policy in force, in the same way for every function.

A document has schedules: the policy in force is what it says at an instant. Checks whether a
cluster may be read or changed use the current time, so that passes resume for a cluster that a
schedule switched off when its window closes.

A stored document was checked when it was applied, and is checked again whenever it is read: it may
be older than a rule, or may have been stored without this program. If it cannot be read now (an
older program reads a newer document) or names what the deployment does not permit, that cluster is
skipped with an error, and the others continue.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.policy.compiled import NotUsable, decompiled
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import logger

if TYPE_CHECKING:
    from chalicelib.store.policies import StoredPolicy


def in_force(stored: StoredPolicy, now: float, deployment: Deployment | None = STRICT) -> Policy:
    """Return what a stored document says at `now` (epoch seconds), with its version. Raises
    InputErrors, also for what the deployment does not permit (the strictest deployment, if not
    given), and for a row that cannot be read. deployment: None where a command does not know it, so
    that only the text is judged."""
    if stored.problem:
        raise BadInput(f"policy {stored.name}", stored.problem, "apply the policy again")
    if deployment is None:
        from chalicelib.policy.load import load

        return instant(
            load(stored.text, place=f"policy {stored.name}, version {stored.version}")[0], now
        )
    return instant(read(stored.text, stored.name, stored.version, stored.compiled, deployment), now)


def in_force_or_problem(
    stored: StoredPolicy, now: float, deployment: Deployment | None = STRICT
) -> tuple[Policy | None, str]:
    """Return the policy in force and "", or None and why there is none: one line,
    without names of secrets. For what shows several clusters: no document may hide the
    others, whatever it contains."""
    try:
        return in_force(stored, now, deployment), ""
    except BadInput as bad:
        if "secret" in bad.place.lower():  # an error about a name quotes it
            return None, f"{bad.place}: cannot be used"
        return None, str(bad).splitlines()[0]
    except Exception as error:
        logger.exception("policy not read", cluster=stored.name)
        return None, f"policy {stored.name}: cannot be read ({type(error).__name__})"


def instant(policy: Policy, now: float) -> Policy:
    """Return a policy as it is at `now`. The code that evaluates cron and time zones is loaded only
    where there are schedules, so that functions that only forward messages start without it."""
    if not policy.schedules:
        return policy
    from chalicelib.policy.open_schedules import apply_schedules

    return apply_schedules(policy, now)


@functools.lru_cache(maxsize=256)
def read(
    text: str,
    name: str,
    version: int,
    compiled: bytes | None = None,
    deployment: Deployment = STRICT,
) -> Policy:
    """Return the policy in this text, schedules not applied, under the name and version it was
    stored as. Raises InputErrors.

    The result is cached in the process: a version's text never changes, and every function
    begins by reading a policy.
    """
    policy = None
    if compiled:
        try:
            policy = decompiled(compiled, text, name, deployment)
        except NotUsable as error:
            if not error.other:
                what = "compiled policy not used; parsing the text"
                logger.warning(what, cluster=name, version=version, detail=str(error))
    if policy is None:
        from chalicelib.policy.admission import Admission
        from chalicelib.policy.load import load

        place = f"policy {name}, version {version}"
        policy, _warnings = load(text, place=place, admission=Admission(deployment, cluster=name))
    return msgspec.structs.replace(policy, name=name, version=version)
