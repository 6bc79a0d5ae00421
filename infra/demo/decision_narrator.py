"""Prints Outscaler's decisions and actions, from the results of its functions,
its journal and its memory.
"""

from __future__ import annotations

import datetime as dt
import json
import queue
import re
from collections.abc import Callable, MutableMapping
from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.plan import Plan, RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.reasons import text
from chalicelib.reasons import text as reason_text
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.words import counted
from chalicelib.store import Store
from chalicelib.store.errors import StoreError
from chalicelib.store.journal import JournalEntry
from infra.demo.console import AT_ONCE, CALLED_OFF, Acted, Ledger, Say, names, span
from infra.demo.consolidation import MoveNarrator
from infra.demo.departures import (
    RENEWALS,
    DepartureNarrator,
    removal_words,
    restart_words,
    successor_of,
)
from infra.demo.fixture import (
    BUSY_RULE,
    DELAY_AFTER_ADD,
    FORECAST,
    SECOND,
    SOLD_OUT,
    THRESHOLDS,
    UNNEEDED_TIME,
    managed_name,
)
from infra.emulators.lambda_events import Json
from infra.emulators.live.lambda_processes import Result

TIMERS_EVERY = 60.0  # virtual seconds between two lines about timers
_RECENT = 30


def _is_quiet(result: Result) -> bool:
    """Return whether a pass read the cluster and started no operation. A pass that found the lease
    taken, or no work, wrote nothing."""
    return result.counts.get("writes", 0) > 0 and not any(
        name.startswith("sent:act") for name in result.counts
    )


class Narrator:
    """look() reports what is new since the last call; heard() accepts results from any thread.
    groups: names of groups whose ids are not readable; those of groups that Outscaler makes are
    added. unneeded_time, delay_after_add: as the policy has them, in seconds."""

    def __init__(
        self,
        cluster: str,
        store: Store,
        clock: Callable[[], float],
        ledger: Ledger,
        say: Say,
        groups: MutableMapping[str, str],
    ) -> None:
        self._cluster, self._store, self._clock, self._ledger, self._say = (
            cluster,
            store,
            clock,
            ledger,
            say,
        )
        self._groups = groups
        self._results: queue.SimpleQueue[tuple[Result, Json]] = queue.SimpleQueue()
        self._seen: set[str] = set()
        self._known: dict[str, Operation] = {}
        self._interrupted: set[str] = set()
        self._unneeded: frozenset[str] = frozenset()
        self._timers_told, self._woken_told, self._cooldown_told = 0.0, False, False
        self._rulings = Rulings(ledger, say, self.short, self.named)
        self._moves = MoveNarrator(ledger.consolidated, say, self.short)
        self._departures = DepartureNarrator(ledger, say, self.named)
        self.memory = Memory()
        self.plans = 0
        self.unneeded_time, self.delay_after_add = UNNEEDED_TIME, DELAY_AFTER_ADD

    def short(self, group: str) -> str:
        """Return `workers` for `MachineDeployment/default/workers`."""
        return self._groups.get(group) or group.rsplit("/", 1)[-1]

    def named(self, text: str) -> str:
        for id_, name in sorted(self._groups.items(), key=lambda pair: -len(pair[0])):
            # nodes have names that contain the id of their group
            text = re.sub(rf"(?<![\w-]){re.escape(id_)}(?![\w-])", name, text)
        return text

    def heard(self, result: Result, event: Json) -> None:
        self._results.put((result, event))

    def new_chapter(self) -> None:
        self._woken_told = self._cooldown_told = False

    def look_at_operations(self) -> None:
        """Report new operations. They are in memory before a function executes them."""
        try:
            self.memory = self._store.memory.load(self._cluster)
        except StoreError:  # the next call sees it
            return
        for operation in self.memory.operations:
            self._meet(operation)

    def look(self) -> None:
        self.look_at_operations()
        try:
            entries = self._store.journal.recent(self._cluster, _RECENT)
        except StoreError:
            return
        while not self._results.empty():
            self._tell_result(*self._results.get())
        for entry in reversed(entries):
            key = f"{entry.at}{entry.kind}{entry.plan}{entry.operation}"
            if key not in self._seen:
                self._seen.add(key)
                self._tell_entry(entry)
        self._tell_timers()

    # -- functions

    def _tell_result(self, result: Result, event: Json) -> None:
        ledger = self._ledger
        ledger.invocations[result.function] += 1
        ledger.cold_starts += result.cold
        ledger.aws_requests += result.counts.get("requests", 0)
        if result.killed:
            self._tell_death(result, event)
        elif result.error or result.failed_messages:
            what = result.error or "gave its message back"
            ledger.errors.append(f"{result.function}: {what}")
            self._say("killed", f"{result.function}: {what}; see the log")
        elif result.function == "tick":
            self._tell_tick(result)
        elif result.function == "api_handler":
            self._tell_webhook(result, event)
        elif result.function == "reconcile" and _is_quiet(result):
            ledger.quiet_writes.append(result.counts["writes"])

    def _tell_death(self, result: Result, event: Json) -> None:
        bodies = [json.loads(record["body"]) for record in event.get("Records", ())]
        operation = self._known.get(bodies[0].get("operation", "")) if bodies else None
        where = f" for {self.short(operation.spec.group)}" if operation else ""
        self._interrupted |= {operation.spec.id} if operation else set()
        if operation is not None and operation.spec.choice is not None:
            self._ledger.opened.interrupted.add(self.short(operation.spec.group))
        self._ledger.killed.append(result.function)
        self._say(
            "killed",
            (
                f"{result.function} was killed after its call to the provider{where}, before it "
                "could record it"
            ),
        )

    def _tell_tick(self, result: Result) -> None:
        swept = result.answer.get("swept", ()) if isinstance(result.answer, dict) else ()
        if swept:
            self._ledger.swept += len(swept)
            groups = names(
                self.short(self._known[each].spec.group) for each in swept if each in self._known
            )
            self._say(
                "outscaler",
                (
                    f"tick: {counted(len(swept), 'operation')} ({groups}) without an executor, the "
                    "claim expired: sent again"
                ),
            )

    def _tell_webhook(self, result: Result, event: Json) -> None:
        if event.get("httpMethod") != "POST" or not isinstance(result.answer, dict):
            return
        body: dict[str, Any] = json.loads(result.answer.get("body") or "{}")
        if not body.get("woken"):
            return
        self._ledger.woken += 1
        if not self._woken_told:
            self._woken_told = True
            self._say(
                "outscaler",
                f"webhook: {counted(body['accepted'], 'event')}, {body['matched']} of them matter: "
                "one pass, in 2 seconds",
            )

    # -- decisions

    def _meet(self, operation: Operation) -> None:
        if operation.spec.id not in self._known:
            self._known[operation.spec.id] = operation
            self._tell_operation(operation)

    def _tell_operation(self, operation: Operation) -> None:
        choice = operation.spec.choice
        if choice is not None:
            name = managed_name(choice.declaration, choice.instance_type)
            self._groups[operation.spec.group] = name
        group = self.short(operation.spec.group)
        if operation.spec.kind is OperationKind.SCALE_UP:
            self._ledger.planned[group] += operation.spec.to_size - operation.spec.from_size
            if operation.spec.replacement and operation.spec.reason in RENEWALS:
                self._ledger.renewed[group] += 1
            self._say(
                "outscaler",
                (
                    f"plan: grow {group} from {operation.spec.from_size} to "
                    f"{operation.spec.to_size} {_purpose(operation)}"
                ),
            )
        if operation.spec.kind is OperationKind.REMOVE_GROUP:
            self._say("outscaler", f"plan: delete the empty group {group}")
        if operation.spec.kind is OperationKind.DELETE_INSTANCES:
            self._say(
                "outscaler",
                f"plan: {group}: no longer ask for "
                f"{counted(len(operation.spec.targets), 'instance')} that "
                "could not be made",
            )
            return
        for target in operation.spec.targets:
            if operation.spec.kind is OperationKind.RESTART_NODE:
                self._say(
                    "outscaler", f"plan: restart {target.node}: {restart_words(len(target.evict))}"
                )
                continue
            how = (
                f"drain {counted(len(target.evict), 'pod')}, then delete it"
                if target.evict
                else "it is empty"
            )
            self._say("outscaler", f"plan: remove {target.node}{removal_words(operation)}: {how}")

    def _tell_entry(self, entry: JournalEntry) -> None:
        if entry.kind == "plan" and entry.body:
            self.plans += 1
            self._tell_plan(msgspec.json.decode(entry.body, type=Plan))
        elif entry.kind == "operation":
            self._tell_end(entry)

    def _tell_end(self, entry: JournalEntry) -> None:
        facts, state = entry.facts, str(entry.facts.get("state", ""))
        # The scheduler was faster: the node is in use again and stays. Whether this happens
        # depends on the machine's speed.
        in_use_again = "was bound to it after it was planned" in str(facts.get("message", ""))
        self._ledger.ended[CALLED_OFF if in_use_again else state] += 1
        if entry.operation not in self._known:  # it began and ended between two calls
            over = self._store.operations.get(self._cluster, entry.operation)
            if over is not None:
                self._meet(over)
        target = self.named(str(facts.get("targets", self.short(entry.group))))
        if state == "failed" and not in_use_again:
            self._ledger.failed.add(target)
        why = f": {facts['message']}" if "message" in facts else ""
        again = (
            "; it had asked the provider first: done already, nothing is bought again"
            if entry.operation in self._interrupted
            else ""
        )
        self._say(
            "outscaler",
            f"operation {facts.get('kind', '')} {target} {state}, "
            f"{span(float(facts.get('seconds', 0)))} after it was planned{why}{again}",
        )

    def _tell_plan(self, plan: Plan) -> None:
        if not self._ledger.why_not:
            self._tell_why_not(plan)
        self._tell_second_choices(plan)
        self._rulings.tell(plan)
        self._moves.tell(plan)
        self._departures.tell(plan)
        unneeded = frozenset(plan.unneeded)
        if fresh := unneeded - self._unneeded:
            timer = span(self.unneeded_time)
            self._say(
                "outscaler", f"plan: {names(fresh, 4)} no longer needed; a timer of {timer} runs"
            )
        self._unneeded = unneeded
        waits = [
            verdict.reason.params
            for verdict in plan.unremovable
            if verdict.reason.code is ReasonCode.IN_COOLDOWN
        ]
        if waits and not self._cooldown_told:
            self._cooldown_told = True
            left = float(waits[0]["until"]) - plan.at
            self._say(
                "time",
                f"cooldown: {counted(len(waits), 'node')} could go by now, but for another "
                f"{span(left)} "
                f"none may: {waits[0]['which']}",
            )

    def _tell_second_choices(self, plan: Plan) -> None:
        """Report the first decision that knows of an unavailable group, and its other scale-ups."""
        grown = [self.short(each.group) for each in plan.scale_ups]
        second = {**SECOND, **SOLD_OUT}
        for each in plan.groups:
            first = self.short(each.group)
            if each.backoff is None or first not in second or first in self._ledger.second_choice:
                continue
            self._ledger.second_choice[first] = (
                AT_ONCE if second[first] in grown else "not bought at once"
            )
            self._say(
                "outscaler",
                (
                    f"plan: {first}: {reason_text.sentence(each.backoff)}; the same pass grows "
                    f"{names(grown) or 'nothing'}"
                ),
            )

    def _tell_why_not(self, plan: Plan) -> None:
        for verdict in plan.unschedulable:
            if not any(f"/{FORECAST}-" in pod for pod in verdict.pods):
                continue
            groups = {group: self.short(group) for group in verdict.reasons}
            why = no_place(verdict, groups).line
            self._ledger.why_not.append(why)
            pods = names(pod.split("/")[1] for pod in verdict.pods)
            self._say("outscaler", f"plan: nothing for {pods}: {why}")

    # -- timers

    def timers(self) -> list[tuple[str, float]]:
        """Return (node, seconds since it became unneeded), the longest first."""
        now = self._clock()
        found = [
            (name, now - node.unneeded_since)
            for name, node in self.memory.nodes.items()
            if node.unneeded_since
        ]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def cooldown(self) -> float:
        """Return the seconds until nodes may be removed again after the last
        scale-up, 0.0 if they may be now."""
        last = self.memory.last_scale_up
        return max(0.0, last + self.delay_after_add - self._clock()) if last else 0.0

    def _tell_timers(self) -> None:
        running, now = self.timers(), self._clock()
        if not running or now - self._timers_told < TIMERS_EVERY:
            return
        self._timers_told = now
        told = ", ".join(f"{name} {span(seconds)}" for name, seconds in running[:3])
        more = f" and {len(running) - 3} more" if len(running) > 3 else ""
        rest = f"; cooldown after growth: {span(self.cooldown())} left" if self.cooldown() else ""
        self._say("time", f"unneeded for: {told}{more}, of {span(self.unneeded_time)}{rest}")


def _purpose(operation: Operation) -> str:
    if operation.spec.replacement:
        return f"to replace {successor_of(operation.spec.reason)}"
    pods = operation.spec.pods
    return f"for {counted(len(pods), 'pod')}" if pods else "for a rule"


_WRONG = frozenset({ReasonCode.RULE_INVALID, ReasonCode.RULE_NO_GROUP, ReasonCode.RULE_EXPIRED})


def clock_time(at: float) -> str:
    """Return a time in UTC as `20:47`."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M")


class Rulings:
    """tell() reports those of a plan. short: the name of a group or pool by its id. named:
    replaces ids in a text by names."""

    def __init__(
        self, ledger: Ledger, say: Say, short: Callable[[str], str], named: Callable[[str], str]
    ) -> None:
        self._ledger, self._say, self._short, self._named = ledger, say, short, named
        self._told: set[tuple[str, str]] = set()

    def tell(self, plan: Plan) -> None:
        for note in plan.notes:
            if note.code is ReasonCode.RULE_OBJECT_INVALID:
                self._ledger.rules_wrong.append(text.sentence(note))
        for verdict in plan.rules:
            self._ledger.rules_seen.add(key_of(verdict))
            if verdict.reason is not None and verdict.reason.code in _WRONG:
                self._ledger.rules_wrong.append(text.sentence(verdict.reason))
            if verdict.nodes:
                self._tell_action(plan, verdict)
            elif verdict.reason is not None:
                self._tell_silence(verdict, verdict.reason)

    def _tell_action(self, plan: Plan, verdict: RuleVerdict) -> None:
        key = key_of(verdict)
        groups = tuple(self._short(up.group) for up in plan.scale_ups if key in up.rules)
        ready = sum(
            group.ready for group in plan.groups if group.group.startswith(f"{verdict.pool}/")
        )
        made = Acted(verdict.rule, plan.at, groups, verdict.nodes, verdict.due, verdict.rate, ready)
        again = any(
            each.due == made.due > 0 and each.rule == made.rule for each in self._ledger.acted
        )
        self._ledger.acted.append(made)
        if verdict.due:
            self._ledger.beside.update(
                {
                    each.rule: each.rate
                    for each in plan.rules
                    if not again and each.pool == verdict.pool and each.rate is not None
                }
            )
        words = (
            _of_cron(made, again=again)
            if verdict.due
            else _of_metric(made, self._short(verdict.pool))
        )
        self._say("outscaler", f"rule {verdict.rule}: {words}")

    def _tell_silence(self, verdict: RuleVerdict, reason: Reason) -> None:
        if (said := (key_of(verdict), reason.code.value)) in self._told:
            return
        self._told.add(said)
        waits = f"due at {clock_time(verdict.due)}, " if verdict.due else ""
        rate = (
            f"; cpu of {self._short(verdict.pool)} is at {verdict.rate:.1f} %"
            if verdict.rate is not None
            else ""
        )
        at = reason.params.get("until") if reason.code is ReasonCode.RULE_NOT_DUE else None
        told = f"due at {clock_time(float(at))}" if at else text.sentence(reason)
        source = f" of {verdict.source}" if verdict.source else ""
        self._say("outscaler", f"rule {verdict.rule}{source}: {waits}{self._named(told)}{rate}")


def key_of(verdict: RuleVerdict) -> str:
    return f"{verdict.source}/{verdict.rule}" if verdict.source else verdict.rule


def _of_cron(made: Acted, *, again: bool) -> str:
    nodes = counted(made.nodes, "node")
    if again:
        return (
            f"of what was due at {clock_time(made.due)}, {nodes} did not come: "
            f"asks {names(made.groups)} for it"
        )
    return f"due at {clock_time(made.due)}, adds {nodes}, of {names(made.groups)}"


def _of_metric(made: Acted, pool: str) -> str:
    rates = [made.rate_with(more) for more in (0, made.nodes, made.nodes - 1)]
    now, after, less = (f"{rate:.1f} %" for rate in rates)
    return (
        f"pods ask for {now} of the cpu of {counted(made.ready, 'node')} of {pool}, more than "
        f"{THRESHOLDS.get(made.rule, 0)} %: adds {counted(made.nodes, 'node')}, which makes it "
        f"{after}" + (f"; one less would leave {less}" if made.rule == BUSY_RULE else "")
    )
