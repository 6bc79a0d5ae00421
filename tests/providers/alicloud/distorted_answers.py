"""Answers of the emulated ESS that differ from the documentation."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from infra.emulators.alicloud.serializers import as_text


class Liar:
    """Changes answers so that they differ from the documentation. chance: the
    probability for each answer."""

    def __init__(self, dice: random.Random, chance: float) -> None:
        self.dice, self.chance = dice, chance

    def shaped(self, made: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer, changed with the configured probability."""
        if not made or self.dice.random() >= self.chance:
            return made
        return self.dice.choice(
            (self.texts, self.doubled, self.strange, self.emptied, self.negative, self.coded)
        )(made)

    def texts(self, made: dict[str, Any]) -> dict[str, Any]:
        """Turns numbers and booleans into text."""
        return dict(as_text(made))

    def doubled(self, made: dict[str, Any]) -> dict[str, Any]:
        """Lists every element twice."""
        return {key: each * 2 if isinstance(each, list) else each for key, each in made.items()}

    def strange(self, made: dict[str, Any]) -> dict[str, Any]:
        """Sets undocumented states."""
        states = ("State", "StatusCode")
        return self.each(
            made,
            lambda thing: {
                key: "Unheard-Of/\u2603" if key.endswith(states) else value
                for key, value in thing.items()
            },
        )

    def emptied(self, made: dict[str, Any]) -> dict[str, Any]:
        """Removes one field or sets it to null."""
        lost = self.dice.choice(
            (
                "TotalCount",
                "LifecycleState",
                "SuspendedProcesses",
                "Tags",
                "StatusCode",
                "ErrorCode",
                "ScalingInstances",
                "ScalingGroups",
                "ScalingActivityId",
            )
        )
        return {
            key: value
            for key, value in self.each(
                made,
                lambda thing: {key: None if key == lost else value for key, value in thing.items()},
            ).items()
            if key != lost
        }

    def negative(self, made: dict[str, Any]) -> dict[str, Any]:
        """Sets a number below zero."""
        lost = self.dice.choice(
            ("ActiveCapacity", "PendingCapacity", "DesiredCapacity", "TotalCapacity", "MinSize")
        )
        return self.each(
            made, lambda thing: {key: -3 if key == lost else value for key, value in thing.items()}
        )

    def coded(self, made: dict[str, Any]) -> dict[str, Any]:
        """Returns an error code with status 200."""
        return {**made, "Code": "Nobody.KnowsThis", "Message": "with status 200"}

    @staticmethod
    def each(
        made: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """Applies a change to every element of the answer's lists."""
        return {
            key: [change(thing) if isinstance(thing, dict) else thing for thing in value]
            if isinstance(value, list)
            else value
            for key, value in made.items()
        }
