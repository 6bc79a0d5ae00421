"""A topic that often fails: it refuses, or accepts without an answer. What
it has accepted is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from chalicelib.aws.sns import NotPublished


class FaultyTopic:
    """accepted: the events in order. healthy: whether it works; the weather sets
    it for the end of a run."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self.accepted: list[dict[str, Any]] = []
        self.healthy = False

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        """See Publisher."""
        del topic, attributes
        outcome = 1.0 if self.healthy else self._dice.random()
        if outcome < 0.4:
            raise NotPublished("InternalError")
        self.accepted.append(json.loads(text))
        if outcome < 0.6:
            raise NotPublished("ReadTimeoutError")

    def problems(self) -> list[str]:
        """What a subscriber that deduplicates by id would complain about: an end without a
        beginning, a beginning twice."""
        found: list[str] = []
        opened: set[str] = set()
        seen: set[str] = set()
        for event in self.accepted:
            key, state = event["dedupkey"], event["state"]
            if event["id"] in seen:
                continue
            seen.add(event["id"])
            if state == "open":
                found += [f"{key} opened twice"] if key in opened else []
                opened.add(key)
            elif state == "closed":
                found += [] if key in opened else [f"{key} closed and never opened"]
                opened.discard(key)
        return found
