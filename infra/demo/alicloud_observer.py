"""Observes the emulated Alibaba Cloud and prints requests and their results.

It reads the account's scaling activities, as a person would in the console. Purchases are counted: nothing may be
bought twice, and what was refused for lack of stock must be bought from another group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.demo.console import Say, count
from infra.demo.counters import Ledger
from infra.emulators.alicloud.account import AlicloudCloud
from infra.emulators.alicloud.models import Activity


class BurstWatcher:
    """look() reports what is new. groups: scaling group id -> name. first: called before a provider call is reported.
    answered: called when something is bought."""

    def __init__(
        self,
        cloud: AlicloudCloud,
        groups: Mapping[str, str],
        ledger: Ledger,
        say: Say,
        first: Callable[[], None],
        answered: Callable[[], None],
    ) -> None:
        self._cloud, self._groups, self._ledger, self._say = cloud, groups, ledger, say
        self._first, self._answered = first, answered
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def look(self) -> None:
        """Report activities that began or ended since the last call."""
        with self._cloud.lock:
            found = [
                (self._groups[group.id], each) for group in self._cloud.groups.values() for each in group.activities
            ]
        for name, activity in found:
            if activity.id not in self._begun:
                self._begun.add(activity.id)
                self._tell_begin(name, activity)
            if not activity.running and activity.id not in self._ended:
                self._ended.add(activity.id)
                self._tell_end(name, activity)

    def sizes(self) -> dict[str, int]:
        """Return name -> desired machines."""
        with self._cloud.lock:
            return {name: self._cloud.groups[id_].desired or 0 for id_, name in self._groups.items()}

    def _tell_begin(self, name: str, activity: Activity) -> None:
        self._first()
        if activity.grows:
            self._ledger.asked.append((name, 0, activity.wanted))
            self._answered()
        what = "for" if activity.grows else "to remove"
        self._say(
            "provider",
            f"Alibaba Cloud was asked {what} {count(activity.wanted, 'instance')} of {name}: "
            f"activity {activity.id} begins",
        )

    def _tell_end(self, name: str, activity: Activity) -> None:
        made = len(activity.machines)
        if not activity.grows:
            self._say("provider", f"activity {activity.id}: {count(made, 'instance')} of {name} released")
            return
        if made:
            self._ledger.bought[name] += made
            self._say("provider", f"activity {activity.id}: {count(made, 'instance')} of {name} in service")
        if missing := activity.wanted - made:
            code = activity.problems[0].code if activity.problems else "no reason"
            self._ledger.refused[name] += missing
            self._ledger.why[name] = code
            self._say(
                "provider", f"activity {activity.id} {activity.status.lower()}: {missing} of {name} not made, {code}"
            )
