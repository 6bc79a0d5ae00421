"""Runs a scenario in one mode, records all decisions, and compares them with the other mode.

    one-process    objects stay alive between the functions, as in a process that never dies
    restarted      every invocation starts cold: store, connections, caches and
                   runtime are recreated before it
    on-moto        one process, with moto's table and queues behind a socket in place of the
                   in-memory ones; as it takes several times as long, `make test` runs a sample and
                   `make test-slow` all of them

The modes run as separate tests, possibly in different processes. Each writes its record to a file,
and a later one compares: the plans with their ids and verdicts, the memory after every pass, and
the final table must be identical. A failing scenario leaves no record; its failure is sufficient.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.runtime.log import logger
from infra.emulators.aws import LocalAws
from tests.scenario.scenario_world import Json, ScenarioWorld

MODES = ("one-process", "restarted", "on-moto")
_DIGEST = re.compile("#[0-9a-f]{32}#")
Scenario = Callable[[ScenarioWorld], None]


@dataclass(frozen=True)
class ScenarioRunner:
    """aws: the emulated account, None: the fast world. name: the scenario's; mode: one of MODES;
    accounts: directory for the records of both modes."""

    aws: LocalAws | None
    name: str
    mode: str
    accounts: Path

    def play(self, scenario: Scenario, **settings: Any) -> None:
        """Runs the scenario, and compares if the other mode has run. settings: LocalWorld's."""
        with (
            ScenarioWorld(self.aws, forgetful=self.mode == "restarted", **settings) as world,
            _listening(world.lines),
        ):
            scenario(world)
            account = _account(world)
        self._leave(msgspec.json.encode(account))
        for other in MODES:
            if other != self.mode and self._file(other).exists():
                _compare(
                    json.loads(self._file(other).read_bytes()),
                    json.loads(self._file(self.mode).read_bytes()),
                )

    def _leave(self, account: bytes) -> None:
        """Writes the record atomically, because the other mode may be reading."""
        draft = self._file(self.mode).with_suffix(".draft")
        draft.write_bytes(account)
        draft.replace(self._file(self.mode))

    def _file(self, mode: str) -> Path:
        return self.accounts / f"{self.name}.{mode}.json"


def scenario(**settings: Any) -> Callable[[Scenario], Callable[[ScenarioRunner], None]]:
    """Turns a function of a ScenarioWorld into a test of both modes. settings: LocalWorld's."""

    def made(tell: Scenario) -> Callable[[ScenarioRunner], None]:
        def test(stage: ScenarioRunner) -> None:
            stage.play(tell, **settings)

        test.__name__, test.__doc__, test.__module__ = tell.__name__, tell.__doc__, tell.__module__
        return test

    return made


class _listening:  # noqa: N801 - used as a function
    """Captures the functions' log while open, as lines for CloudWatch."""

    def __init__(self, lines: io.StringIO) -> None:
        self._handler = logging.StreamHandler(lines)
        self._handler.setFormatter(logger.registered_formatter)

    def __enter__(self) -> None:
        logging.getLogger(logger.name).addHandler(self._handler)

    def __exit__(self, *error: object) -> None:
        logging.getLogger(logger.name).removeHandler(self._handler)


def _account(world: ScenarioWorld) -> Json:
    """All decisions and actions, as JSON."""
    passes = [
        {
            key: line[key]
            for key in ("cluster", "plan", "token", "grow", "remove", "unneeded", "gaps")
        }
        for line in world.log
        if line["message"] == "pass"
    ]
    return {
        "passes": passes,
        "memories": world.passes,
        "journal": {
            name: msgspec.to_builtins(world.journal(name)) for name in world.store.policies.names()
        },
        "invocations": [[i.function, i.at, i.killed_at, i.error] for i in world.invocations],
        "nodes": sorted(world.nodes()),
        "table": _without_durations(world.rows()),
    }


def _without_durations(rows: dict[str, Json]) -> dict[str, Json]:
    """Removes two values that differ between runs: the wall-clock duration of a pass in the
    lease's row for GET /metrics, and the digest of a CA, created anew for each world, in the
    key of a group ownership."""
    return {
        _DIGEST.sub(f"#{row.get('owner', '')}#", key): {
            name: _DIGEST.sub("##", value) if isinstance(value, str) else value
            for name, value in row.items()
            if name != "left"
        }
        for key, row in rows.items()
    }


def _compare(theirs: Json, mine: Json) -> None:
    """Raises with the first difference and its path."""
    for part in ("passes", "memories", "journal", "invocations", "nodes", "table"):
        one, other = theirs[part], mine[part]
        if isinstance(one, list):
            for at, (left, right) in enumerate(zip(one, other, strict=False)):
                assert left == right, f"{part}[{at}] differs between the modes"
        assert one == other, f"{part} differ between the modes"
