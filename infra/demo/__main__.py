"""`make run`: demonstrates Outscaler on the local emulation and prints what
happens; it ends by itself.

Exit code 0 if all expectations of the demonstration are met, 1 with the missing ones otherwise, 2
for an invalid argument, 130 if it is interrupted; Ctrl-C is the regular end of --stay. Time runs
faster than wall-clock time, so minutes of timers take seconds; the output shows both. It runs
slower while something works, so that a busy machine takes longer and shows the same. It never
passes the real time: with --stay it reaches it, and is the real time from then on.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from rich.console import Console

from infra.demo import fixture
from infra.demo.cloud_accounts import Clouds
from infra.demo.cluster_observer import Watcher
from infra.demo.console import Ledger, OneLineParser, Screen
from infra.demo.decision_narrator import Narrator
from infra.demo.expectations import checked, figures, verdicts
from infra.demo.fixture import Passes, Subscriber, status_page
from infra.demo.scenario import (
    ACT,
    ACT_BURST,
    ACT_CCE,
    ACT_METAL,
    ACT_SKS,
    SMALLEST,
    DemoStage,
    chapters,
    play,
)
from infra.emulators.lambda_events import Json
from infra.emulators.live.emulation import AT_WORK, ROOT, TABLE, Emulation, Setting
from infra.emulators.live.lambda_processes import Result
from infra.tools.interruptible import run

SPEED, FASTEST = 60.0, 100.0
KILLS = 5
UP_TO_DATE = 180.0
"""With --stay time jumps to so many seconds before the present, so that the
commands find passes of now."""
WIDTH = 150
"""Columns if the output is not a terminal."""
PLACE = ROOT / ".local"


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    # The emulation's libraries log messages that are not part of the demonstration.
    logging.basicConfig(level=logging.ERROR)
    warnings.simplefilter("ignore")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    present = time.time()
    setting = Setting(
        fixture.CLUSTER,
        fixture.evening(present),
        args.speed,
        args.place,
        warm=("tick", "reconcile", ACT, ACT_BURST, ACT_SKS, ACT_METAL, ACT_CCE, "api_handler"),
        present=present,
    )
    try:
        return tell(console, setting, kills=args.kill_act, stay=args.stay)
    except (RuntimeError, OSError) as error:
        console.print(
            f"The emulation could not be started: {error}. The log is {args.place / 'run.log'}"
        )
        return 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog="make run", description="Plays the main job on the local emulation and prints it live."
    )
    parser.add_argument(
        "--stay", action="store_true", help="keep everything up afterwards, until Ctrl-C"
    )
    parser.add_argument(
        "--speed",
        type=_speed,
        metavar="N",
        default=SPEED,
        help=(
            f"virtual seconds per second while nothing works, 1 to {FASTEST:g} (default {SPEED:g})"
        ),
    )
    parser.add_argument(
        "--kill-act",
        type=_kills,
        default=KILLS,
        metavar="N",
        help=(
            f"how often the act function is killed in mid-purchase, 0 to {KILLS} (default {KILLS})"
        ),
    )
    parser.add_argument(
        "--place",
        type=Path,
        default=PLACE,
        metavar="DIR",
        help="where the log and, while it runs, a kubeconfig go (default .local)",
    )
    return parser.parse_args(argv)


def _speed(text: str) -> float:
    return _within(text, 1.0, FASTEST)


def _kills(text: str) -> int:
    return int(_within(text, 0, KILLS))


def _within(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number from {least:g} to {most:g}")
    return value


def tell(
    console: Console,
    setting: Setting,
    *,
    kills: int = KILLS,
    stay: bool = False,
    wall: Callable[[], float] = time.monotonic,
) -> int:
    began = wall()
    console.print(
        f"Starting the emulation. Time in it runs {setting.speed:g} times as fast as on the wall, "
        f"{AT_WORK:g} times "
        "while a function works; every line has both."
    )
    ledger, relay = Ledger(), _Relay()
    # If the purchase itself is not interrupted, it has timed out in the pass that finds the broken
    # server, and the group backs off for as long as all the rest of the demonstration takes.
    ledger.broken = int(kills == KILLS)
    clouds = Clouds(ledger.broken)
    with Emulation(setting, relay, wall, clouds.accounts) as emulation:
        since = emulation.clock()
        groups = clouds.furnish()

        def elapsed() -> tuple[float, float]:
            return emulation.clock() - since, wall() - began

        with Screen(console, elapsed) as screen:
            narrator = Narrator(
                setting.cluster, emulation.store, emulation.clock, ledger, screen.say, groups
            )
            relay.to = narrator.heard
            watcher = Watcher(
                emulation.kube,
                emulation.server,
                ledger,
                screen.say,
                elapsed,
                narrator.look_at_operations,
            )
            watcher.sides = clouds.sides(
                ledger, screen.say, narrator.look_at_operations, watcher.answered
            )
            passes = Passes(emulation.functions)
            stage = DemoStage(
                emulation,
                screen,
                ledger,
                watcher,
                narrator,
                elapsed,
                kills,
                clouds=clouds,
                passes=passes,
                subscriber=Subscriber(emulation.aws),
            )
            try:
                play(stage, chapters(kills, ledger.broken))
            finally:
                passes.release()
            _take_stock(stage)
        found = checked(ledger, kills, SMALLEST, fixture.SECOND, fixture.LATER)
        for table in (verdicts(found), figures(ledger, *elapsed())):
            console.print("", table)
        code = 0 if all(each.met for each in found) else 1
        _say_verdict(console, code, emulation)
        if stay:
            name = partial(clock_name, emulation.clock.until_present)
            with status_page(emulation.store, emulation.clock, emulation.deployment, name) as page:
                try:
                    _stay(console, emulation, page)
                except KeyboardInterrupt:
                    console.print("ending")
    return code


class _Relay:
    """Passes results to the narrator as soon as it exists."""

    def __init__(self) -> None:
        self.to: Callable[[Result, Json], None] | None = None

    def __call__(self, result: Result, event: Json) -> None:
        if self.to is not None:
            self.to(result, event)


def _take_stock(stage: DemoStage) -> None:
    stage.watcher.look()
    stage.narrator.look()
    stage.ledger.open_operations = len(stage.narrator.memory.operations)
    stage.ledger.dead_letters = stage.emulation.dead_letters()
    stage.ledger.errors += stage.emulation.ended
    for event in stage.subscriber.received():
        kind = event["type"].removeprefix("dev.outscaler.")
        stage.ledger.notices.append(f"{kind} {event['state']} {unquote(event['subject'])}")


def _say_verdict(console: Console, code: int, emulation: Emulation) -> None:
    log = f"What the functions logged: {_relative(emulation.log_path)}"
    console.print(
        "",
        f"[bold green]Everything happened as it should.[/] {log}"
        if code == 0
        else f"[bold red]Not everything happened as it should, see NO above.[/] {log}",
        sep="\n",
    )


def clock_name(until_present: Callable[[], float]) -> str:
    """Return what the page calls its time: that of the demonstration, until it
    has reached the real time."""
    return "the demonstration's time, not the real time" if until_present() > 0.0 else ""


def _stay(console: Console, emulation: Emulation, page: str) -> None:
    """Tell what can be looked at, and wait for Ctrl-C. The commands read the real time, so they are
    told as soon as it is the time of the emulation."""
    console.print(
        f"""
Everything stays up; Ctrl-C ends it.
  the cluster     kubectl --kubeconfig {_relative(emulation.kubeconfig_path)} get nodes,pods -A
  its API         {emulation.server.url}
  the page        {page}
                  (its clock is the demonstration's)
  Outscaler       curl -H 'x-api-key: {emulation.front.api_key}' \
{emulation.front.url}/clusters/{fixture.CLUSTER}""",
        soft_wrap=True,
        markup=False,
    )
    emulation.clock.jump(emulation.setting.present - UP_TO_DATE)
    left = emulation.clock.until_present()
    if left > 0.0:
        console.print(
            f"\nTime in the emulation reaches the present in {left:.0f} s, and is the real time "
            "from then on."
        )
        while (left := emulation.clock.until_present()) > 0.0:
            threading.Event().wait(left)
    names = ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    variables = " ".join(f"{name}={emulation.aws.env[name]}" for name in names)
    console.print(
        f"""
Time in the emulation is the real time. In another terminal:
  export {variables} OUTSCALER_TABLE={TABLE}
  {_relative(Path(sys.executable).parent)}/outscaler get
  {_relative(Path(sys.executable).parent)}/outscaler history {fixture.CLUSTER}
  {_relative(Path(sys.executable).parent)}/outscaler explain group {fixture.WORKERS_ID} --cluster \
{fixture.CLUSTER}""",
        soft_wrap=True,
        markup=False,
    )
    threading.Event().wait()


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


if __name__ == "__main__":
    run(main)
