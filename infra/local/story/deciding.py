"""What Outscaler decides and does, told: from the results of its functions, its journal and its memory."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import Code
from chalicelib.plan import explain
from chalicelib.store import Store
from chalicelib.store.errors import StoreError
from chalicelib.store.journal import JournalEntry
from infra.local.lambda_events import Json
from infra.local.live.processes import Result
from infra.local.story.ledger import Ledger
from infra.local.story.scene import DELAY_AFTER_ADD, UNNEEDED_TIME
from infra.local.story.telling import span
from infra.local.story.watching import Say, count, names

TIMERS_EVERY = 60.0     # virtual seconds between two lines about timers
_RECENT = 30


def short(group: str) -> str:
    """`MachineDeployment/default/workers` -> `workers`."""
    return group.rsplit("/", 1)[-1]


class Narrator:
    """look() tells what is new since the last look; heard() takes results from any thread."""

    def __init__(self, cluster: str, store: Store, clock: Callable[[], float], ledger: Ledger, say: Say) -> None:
        self._cluster, self._store, self._clock, self._ledger, self._say = cluster, store, clock, ledger, say
        self._results: queue.SimpleQueue[tuple[Result, Json]] = queue.SimpleQueue()
        self._seen: set[str] = set()
        self._unneeded: frozenset[str] = frozenset()
        self._timers_told = 0.0
        self._cooldown_told = False
        self.memory = Memory()
        self.plans = 0

    def heard(self, result: Result, event: Json) -> None:
        """An invocation has ended."""
        self._results.put((result, event))

    def look(self) -> None:
        """Results, then decisions, then timers."""
        while not self._results.empty():
            self._tell_result(*self._results.get())
        try:
            entries = self._store.journal.recent(self._cluster, _RECENT)
            self.memory = self._store.memory.load(self._cluster)
        except StoreError:      # the next look sees it
            return
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
            ledger.killed.append(result.function)
            self._say("killed", f"{result.function} died after its call to the provider, before it could record it")
        elif result.error:
            ledger.errors.append(f"{result.function}: {result.error}")
            self._say("killed", f"{result.function} failed: {result.error}")
        elif result.failed_messages:
            ledger.errors.append(f"{result.function} gave a message back")
            self._say("killed", f"{result.function} could not do it and gave its message back; see the log")
        teller = {"tick": self._tell_tick, "api_handler": self._tell_webhook}.get(result.function)
        if teller and result.finished:
            teller(result, event)
        if result.function == "reconcile" and result.finished and "writes" in result.counts:
            if not any(name.startswith("sent:act") for name in result.counts):
                ledger.quiet_writes.append(result.counts["writes"])

    def _tell_tick(self, result: Result, _event: Json) -> None:
        swept = result.answer.get("swept", ()) if isinstance(result.answer, dict) else ()
        if swept:
            self._ledger.swept += len(swept)
            self._say("outscaler", f"tick: {count(len(swept), 'operation')} left lying, nobody is at it any more: "
                                   "sent again")

    def _tell_webhook(self, result: Result, event: Json) -> None:
        if event.get("httpMethod") != "POST" or not isinstance(result.answer, dict):
            return
        body: dict[str, Any] = json.loads(result.answer.get("body") or "{}")
        if body.get("woken"):
            self._ledger.woken += 1
            self._say("outscaler", f"webhook: {count(body['accepted'], 'event')}, {body['matched']} of them matter: "
                                   "one pass asked for, 2 s from now")

    # -- decisions

    def _tell_entry(self, entry: JournalEntry) -> None:
        if entry.kind == "plan" and entry.body:
            self.plans += 1
            self._tell_plan(msgspec.json.decode(entry.body, type=Plan))
        elif entry.kind == "operation":
            state = str(entry.facts.get("state", ""))
            self._ledger.ended[state] += 1
            target = f" {entry.facts['targets']}" if "targets" in entry.facts else f" {short(entry.group)}"
            why = f": {entry.facts['message']}" if "message" in entry.facts else ""
            self._say("outscaler", f"operation {entry.facts.get('kind', '')}{target} {state}, "
                                   f"{span(float(entry.facts.get('seconds', 0)))} after it was planned{why}")

    def _tell_plan(self, plan: Plan) -> None:
        for each in plan.scale_ups:
            self._ledger.planned[short(each.group)] += each.to_size - each.from_size
            self._say("outscaler", f"plan: grow {short(each.group)} from {each.from_size} to {each.to_size} "
                                   f"for {count(len(each.pods), 'pod')}")
        if not self._ledger.why_not:
            self._tell_why_not(plan)
        for removal in plan.removals:
            how = f"drain {count(len(removal.evict), 'pod')}, then delete it" if removal.evict else "it is empty"
            self._say("outscaler", f"plan: remove {removal.node}: {how}")
        self._tell_unneeded(frozenset(plan.unneeded))
        waits = [note for note in plan.notes if note.code is Code.IN_COOLDOWN]
        if waits and plan.unneeded and not self._cooldown_told:
            self._cooldown_told = True
            until = float(waits[0].params.get("until", 0.0)) - plan.at
            self._say("time", f"nothing is removed for another {span(until)}: {waits[0].params.get('which')}")

    def _tell_why_not(self, plan: Plan) -> None:
        for verdict in plan.unschedulable:
            told = "; ".join(f"{short(group)}: {', '.join(map(explain.sentence, reasons))}"
                             for group, reasons in sorted(verdict.reasons.items()))
            self._ledger.why_not.append(told)
            self._say("outscaler", f"plan: nothing for {names(pod.split('/')[1] for pod in verdict.pods)} — {told}")

    def _tell_unneeded(self, unneeded: frozenset[str]) -> None:
        if fresh := unneeded - self._unneeded:
            self._ledger.unneeded |= fresh
            self._say("outscaler", f"plan: {names(fresh, 4)} no longer needed; a timer of {span(UNNEEDED_TIME)} runs")
        self._unneeded = unneeded

    # -- timers

    def timers(self) -> list[tuple[str, float]]:
        """(node, seconds it has been unneeded), the longest first."""
        now = self._clock()
        found = [(name, now - node.unneeded_since) for name, node in self.memory.nodes.items() if node.unneeded_since]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def cooldown(self) -> float:
        """Seconds until nodes may be removed again after the last growth; 0.0: now."""
        return max(0.0, self.memory.last_scale_up + DELAY_AFTER_ADD - self._clock()) if self.memory.last_scale_up else 0.0

    def _tell_timers(self) -> None:
        running = self.timers()
        now = self._clock()
        if not running or now - self._timers_told < TIMERS_EVERY:
            return
        self._timers_told = now
        told = ", ".join(f"{name} {span(seconds)}" for name, seconds in running[:4])
        more = f" and {len(running) - 4} more" if len(running) > 4 else ""
        rest = f"; cooldown after growth: {span(self.cooldown())} left" if self.cooldown() else ""
        self._say("time", f"unneeded for: {told}{more} (of {span(UNNEEDED_TIME)}){rest}")
