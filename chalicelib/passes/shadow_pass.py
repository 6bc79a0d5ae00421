"""Compares a pass of a cluster in mode shadow with what the autoscaler did that acts there.

Before it, the other autoscaler's acts start our cool-downs, so that the
plan waits as it would have.

It costs one read of the cluster (the other autoscaler's status), one read of the table, and at most
one write. The planner is asked once more in the pass that sees a growth, for the state before it,
and in the pass that judges it; there up to three times again to know a tie. A failure is logged and
never fails the pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chalicelib.cluster import objects
from chalicelib.cluster.errors import ClusterError, NotFound
from chalicelib.journal.status_configmap import ANNOTATION, KEY
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.shadow.comparison import (
    advance,
    answered,
    answered_early,
    open_question,
    postponed,
    worth_writing,
)
from chalicelib.shadow.cooldowns import NO_PLAN, with_cooldowns
from chalicelib.shadow.observed import Pass
from chalicelib.shadow.other_status import OtherStatus, read_status
from chalicelib.shadow.rebuild import Rebuilt, rebuild
from chalicelib.shadow.records import Ledger
from chalicelib.store.leases import Lease

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient

ASKED_WITHIN = 20.0
"""Seconds for the additional question. It waits for the next pass where fewer are left."""
_LEAST = 1.0


class ObservedAutoscaler:
    """The other autoscaler beside one pass: what the last passes have noted of it, and its
    status. Both are read once, before the decision, which they influence, and are used
    again for the comparison."""

    def __init__(self, policy: Policy, kube: KubeClient, runtime: Runtime) -> None:
        self._policy, self._kube, self._runtime = policy, kube, runtime
        self._reading: tuple[Ledger | None, OtherStatus | None, bool] | None = None

    def read(self) -> tuple[Ledger | None, OtherStatus | None, bool]:
        """Return the last row, the status, and whether there is none. Raises StoreError."""
        if self._reading is None:
            ledger = self._runtime.store.shadow().load(self._policy.name)
            self._reading = ledger, *_status(self._policy, self._kube)
        return self._reading

    def remembered(self, snapshot: Snapshot, memory: Memory) -> Memory:
        """Return the memory with the cool-downs that the other's acts have started. Never
        raises."""
        try:
            ledger, status, missing = self.read()
            this_pass = Pass(snapshot, self._policy, memory, NO_PLAN, status, missing=missing)
            return with_cooldowns(ledger, this_pass)
        except Exception as error:
            logger.exception("cool-downs not started", cluster=self._policy.name, **failure(error))
            return memory

    def compare(
        self, plan: Plan, snapshot: Snapshot, old_memory: Memory, lease: Lease, until: float
    ) -> None:
        """Record what changed since the last pass. old_memory: the memory that the plan was made
        with. until: when the pass must be over. Never raises."""
        try:
            ledger, status, missing = self.read()
            this_pass = Pass(snapshot, self._policy, old_memory, plan, status, lease.token, missing)
            _compare(this_pass, ledger, self._runtime, until)
        except Exception as error:
            logger.exception("comparison not recorded", cluster=self._policy.name, **failure(error))


def _compare(this_pass: Pass, last_ledger: Ledger | None, runtime: Runtime, until: float) -> None:
    def ask(rebuilt: Rebuilt, policy: Policy, seed: int) -> Plan:
        answer, _ = plan_cluster(
            rebuilt.snapshot,
            _in_time(policy),
            rebuilt.memory,
            rebuilt.snapshot.taken_at,
            seed,
            clock=runtime.clock,
            within=max(_LEAST, min(ASKED_WITHIN, until - runtime.clock())),
            wait=False,
        )
        return answer

    step = advance(last_ledger, this_pass)
    ledger = step.ledger
    question = step.question or open_question(ledger)
    in_time = until - runtime.clock() >= ASKED_WITHIN
    if question is not None and in_time:
        past = rebuild(this_pass.snapshot, this_pass.before, question, this_pass.policy.options)
        answer = ask(past, this_pass.policy, this_pass.token)
        again = ask if until - runtime.clock() >= ASKED_WITHIN else None
        if question is step.question:
            ledger = answered(ledger, question, answer, past, this_pass, again)
        else:
            ledger = answered_early(ledger, answer, past, this_pass, again)
    elif step.question is not None:
        ledger = postponed(ledger, step.question)
    if worth_writing(last_ledger, ledger):
        runtime.store.shadow().save(this_pass.policy.name, ledger, this_pass.token)


def _in_time(policy: Policy) -> Policy:
    options = policy.options
    most = min(options.max_binpacking_time, ASKED_WITHIN)
    return msgspec.structs.replace(
        policy, options=msgspec.structs.replace(options, max_binpacking_time=most)
    )


def _status(policy: Policy, kube: KubeClient) -> tuple[OtherStatus | None, bool]:
    """Return the other autoscaler's status; None where it cannot be read, which only makes acts
    less certain. And whether there is none: Cluster Autoscaler deletes its ConfigMap when it ends,
    and one without a text is ours."""
    try:
        configmap = objects.get_config_map_once(
            kube, policy.options.namespace, policy.options.status_config_map_name
        )
    except NotFound:
        return None, True
    except ClusterError:
        return None, False
    text = configmap.text(KEY)
    return read_status(text, configmap.annotation(ANNOTATION), configmap.uid), not text.strip()
