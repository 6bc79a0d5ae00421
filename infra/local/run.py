"""`make run`: the main job on the local emulation, told as it happens; ends by itself.

Exit code 0 if everything that the story promises was seen, 1 with what was missing otherwise, 2 for a wrong argument.
Time runs faster than on the wall, so that minutes of timers take seconds; the account says both.
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

from rich.console import Console

from infra.local.controllers.manager import Pace
from infra.local.live.emulation import PLACE, Emulation, Setting
from infra.local.live.processes import Result
from infra.local.story import scene
from infra.local.story.deciding import Narrator
from infra.local.story.ledger import Ledger, checked
from infra.local.story.script import ACT, SMALLEST, Stage, chapters, play
from infra.local.story.summary import figures, verdicts
from infra.local.story.telling import Screen
from infra.local.story.watching import Watcher

SPEED = 20.0
KILLS = 2
WALL_LIMIT = 85.0


def main(argv: Sequence[str] | None = None) -> int:
    """Play the story; the exit code."""
    args = _arguments(argv)
    # Libraries of the emulation have things to say that are not part of the story.
    logging.basicConfig(level=logging.ERROR)
    warnings.simplefilter("ignore")
    console = Console(highlight=False)
    try:
        return tell(console, speed=args.speed, kills=args.kill_act, stay=args.stay)
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 130


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make run", description="The main job on the local emulation, told live.")
    parser.add_argument("--stay", action="store_true", help="keep everything up afterwards, until Ctrl-C")
    parser.add_argument("--speed", type=_speed, default=SPEED, metavar="N",
                        help=f"virtual seconds per second, 1 to 60 (default {SPEED:g})")
    parser.add_argument("--kill-act", type=_kills, default=KILLS, metavar="N",
                        help=f"how often the act function is killed in mid-purchase, 0 to 2 (default {KILLS})")
    return parser.parse_args(argv)


def _speed(text: str) -> float:
    return _within(text, 1.0, 60.0)


def _kills(text: str) -> int:
    return int(_within(text, 0, 2))


def _within(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number from {least:g} to {most:g}")
    return value


def tell(console: Console, *, speed: float, kills: int, stay: bool, wall: Callable[[], float] = time.monotonic) -> int:
    """The whole run; the exit code."""
    began = wall()
    console.print(f"Outscaler on the local emulation; time runs {speed:g} times as fast. First column: virtual time; "
                  "second: the wall's.")
    ledger, relay = Ledger(), _Relay()
    setting = Setting(scene.CLUSTER, scene.START, speed, Pace(), warm=("tick", "reconcile", ACT, "api_handler"))
    with Emulation(setting, relay, wall) as emulation:
        since = emulation.clock()

        def elapsed() -> tuple[float, float]:
            return emulation.clock() - since, wall() - began

        with Screen(console, elapsed) as screen:
            watcher = Watcher(emulation.kube, emulation.server, ledger, screen.say, elapsed)
            narrator = Narrator(scene.CLUSTER, emulation.store, emulation.clock, ledger, screen.say)
            relay.to = narrator.heard
            stage = Stage(emulation, screen, ledger, watcher, narrator, elapsed, kills, WALL_LIMIT * SPEED / min(speed, SPEED))
            play(stage, chapters())
            _take_stock(stage)
            screen.still()
            found = checked(ledger, kills, SMALLEST)
            screen.table(verdicts(found))
            screen.table(figures(ledger, *elapsed()))
        code = 0 if all(each.met for each in found) else 1
        _say_verdict(console, code)
        if stay:
            _stay(console, emulation)
    return code


class _Relay:
    """Results go to the narrator as soon as there is one."""

    def __init__(self) -> None:
        self.to: Callable[[Result, dict[str, object]], None] | None = None

    def __call__(self, result: Result, event: dict[str, object]) -> None:
        if self.to is not None:
            self.to(result, event)


def _take_stock(stage: Stage) -> None:
    """What can only be said at the end."""
    stage.watcher.look()
    stage.narrator.look()
    stage.ledger.sizes = {name: size for name, (size, _) in stage.watcher.sizes().items()}
    stage.ledger.open_operations = len(stage.narrator.memory.operations)
    stage.ledger.dead_letters = stage.emulation.dead_letters()


def _say_verdict(console: Console, code: int) -> None:
    console.print()
    log = f"What the functions logged: {PLACE.name}/run.log"
    console.print(f"[bold green]Everything happened as it should.[/] {log}" if code == 0
                  else f"[bold red]Not everything happened as it should, see NO above.[/] {log}")


def _stay(console: Console, emulation: Emulation) -> None:
    kubeconfig = f"{PLACE.name}/{emulation.kubeconfig_path.name}"
    console.print(f"""
Everything stays up; Ctrl-C ends it.
  the cluster     kubectl --kubeconfig {kubeconfig} get nodes,pods -A
  its API         {emulation.server.url}
  AWS             AWS_ENDPOINT_URL={emulation.aws.endpoint}  (table outscaler, any credentials)
  Outscaler       curl -H 'x-api-key: {emulation.front.api_key}' {emulation.front.url}/clusters/{scene.CLUSTER}""",
                  soft_wrap=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("ending")


if __name__ == "__main__":
    sys.exit(main())
