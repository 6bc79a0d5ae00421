"""`python -m tests.benchmarks.call_paths`: the way of a message through the code, for a
pass and for an operation.

An emulated cluster scales up, and two walks are traced with `sys.setprofile`. A pass begins with
`handle` of a reconcile message and ends where that function returns. An operation begins with
`handle` of an act message and ends where the vendor's own package asks its API for the first
change.

The walk goes through rooms. A room is a file of `chalicelib` that calls another file, outside of
the packages in GROUNDS. Leaves and GROUNDS are looked up rather than passed through.

    files     rooms
    returns   calls into a room that was entered before. A room that calls another
              several times counts once.
    climbs    moves between two rooms, by a call or by its return, into a higher layer.
              The same move counts once.

The line `whole` counts every file, and climbs by calls alone: those are callbacks into a higher
layer. Frames that import a module do not count. Code outside of `chalicelib` is passed over: a
callback counts for the file that is next below it on the stack.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType

from chalicelib.runtime.runtime import install
from infra.emulators.controllers.objects import deployment, machine_deployment
from infra.emulators.local_world import LocalWorld

ROOT = f"{Path(__file__).resolve().parents[2] / 'chalicelib'}/"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli", "functions"),
    ("passes",),
    ("replay",),
    ("notify",),
    ("operations",),
    ("runtime",),
    ("journal",),
    ("views",),
    ("cluster",),
    ("providers",),
    ("store",),
    ("aws",),
    ("shadow",),
    ("plan",),
    ("policy",),
    ("net",),
    ("schedules", "reasons"),
    ("model",),
)
"""Packages of chalicelib, the highest layer first."""
GROUNDS = ("model", "net", "cluster")
"""Packages that every other one stands on: values, and clients of the
network and of the cluster."""
PASS = ("passes/reconciler.py", "handle")
OPERATION = ("operations/runner.py", "handle")
VENDOR = "providers/clusterapi/api.py"
CHANGES = frozenset({"set_scale", "mark"})
"""Functions of VENDOR that change something."""
POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/shop/kubeconfig}
  providers: {clusterapi: {}}
"""


@dataclass
class Walk:
    """files: in the order of their first call; calls: pairs of caller and called file; moves: the
    files in the order in which control moved between them; path: the call stack at the end,
    outermost first, as file:function."""

    files: list[str] = field(default_factory=list)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    moves: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=list)

    def rooms(self) -> list[str]:
        """Files that are passed through."""
        callers = {caller for caller, _ in self.calls}
        return [file for file in self.files if file in callers and _package(file) not in GROUNDS]

    def counted(self) -> tuple[int, int, int]:
        """Files, returns and climbs between rooms."""
        rooms = self.rooms()
        calls = [pair for pair in self.calls if pair[0] in rooms and pair[1] in rooms]
        moves = [file for file in self.moves if file in rooms]
        climbs = {pair for pair in pairwise(moves) if layer(pair[1]) < layer(pair[0])}
        return len(rooms), len(calls) - (len(rooms) - 1), len(climbs)

    def whole(self) -> tuple[int, int, int]:
        """Files, returns and climbs of every file, by calls alone."""
        return len(self.files), len(self.calls) - (len(self.files) - 1), len(self.callbacks())

    def callbacks(self) -> list[tuple[str, str]]:
        """Calls into a higher layer."""
        return [(caller, called) for caller, called in self.calls if layer(called) < layer(caller)]


def _package(file: str) -> str:
    return file.partition("/")[0]


def layer(file: str) -> int:
    """The number of a file's layer, 0 for the highest. Raises ValueError for a package
    that LAYERS does not name."""
    for number, packages in enumerate(LAYERS):
        if _package(file) in packages:
            return number
    raise ValueError(f"{file}: no layer of {__name__}.LAYERS has its package")


class Tracer:
    """Follows the first call of `begin` until it returns, or until `ends` says
    so of a called function."""

    def __init__(self, begin: tuple[str, str], ends: Callable[[str, str], bool]) -> None:
        self._begin, self._ends = begin, ends
        self._outermost: FrameType | None = None
        self.walk, self.done = Walk(), False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """sys.setprofile."""
        if self.done or event not in ("call", "return"):
            return
        file = _file(frame)
        if not file or frame.f_code.co_name == "<module>":
            return
        if event == "return":
            self.done = frame is self._outermost
            if self._outermost is not None and (below := _caller(frame)) is not None:
                self.walk.moves.append(_file(below))
            return
        name = frame.f_code.co_name
        if self._outermost is None:
            if (file, name) != self._begin:
                return
            self._outermost = frame
            self.walk.files.append(file)
            self.walk.moves.append(file)
            return
        self._enter(frame, file)
        if self._ends(file, name):
            self.done, self.walk.path = True, self._path(frame)

    def _enter(self, frame: FrameType, file: str) -> None:
        caller = _caller(frame)
        if caller is None or caller.f_code.co_name == "<module>":
            return
        self.walk.moves.append(file)
        if file not in self.walk.files:
            self.walk.files.append(file)
        source = _file(caller)
        if source != file:
            self.walk.calls.setdefault((source, file), frame.f_code.co_qualname)

    def _path(self, frame: FrameType | None) -> list[str]:
        names = []
        while frame is not None:
            if _file(frame):
                names.append(f"{_file(frame)}:{frame.f_code.co_qualname}")
            if frame is self._outermost:
                break
            frame = frame.f_back
        return names[::-1]


def _file(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    return name.removeprefix(ROOT) if name.startswith(ROOT) else ""


def _caller(frame: FrameType) -> FrameType | None:
    """The next frame below that is of chalicelib."""
    caller = frame.f_back
    while caller is not None and not _file(caller):
        caller = caller.f_back
    return caller


def traced(begin: tuple[str, str], ends: Callable[[str, str], bool]) -> Walk:
    """Scale up an emulated cluster by three nodes, and follow one message."""
    tracer = Tracer(begin, ends)
    with LocalWorld() as world:
        world.seed(
            machine_deployment("workers", 1, 1, 4),
            deployment("web", replicas=3, cpu="1", memory="1Gi"),
        )
        world.step(80)
        world.apply_policy(POLICY)
        found = world.kube.get("deployments", "web", "default", "apps")
        assert found is not None
        found["spec"]["replicas"] = 8
        world.kube.update("deployments", found, "apps")
        world.settle()
        sys.setprofile(tracer)
        try:
            world.step_until(lambda: tracer.done, limit=900)
        finally:
            sys.setprofile(None)
            install(None)
    return tracer.walk


def to_the_vendor(file: str, name: str) -> bool:
    """Whether this call asks the vendor for a change."""
    return file == VENDOR and name in CHANGES


def show(title: str, walk: Walk, *, long: bool) -> None:
    """Print one walk. long: its files, its callbacks and the call stack at its end, too."""
    for kind, counts in (("", walk.counted()), (" whole", walk.whole())):
        print(f"{title + kind:16} {counts[0]:4} files {counts[1]:4} returns {counts[2]:4} climbs")
    if not long:
        return
    rooms = walk.rooms()
    for number, file in enumerate(walk.files, 1):
        print(f"  {number:3} {'room' if file in rooms else '    '} {file}")
    for caller, called in walk.callbacks():
        print(f"  callback: {caller} calls {called} ({walk.calls[caller, called]})")
    for at, place in enumerate(walk.path):
        print(f"  {'  ' * at}{place}")


def main() -> None:
    """Trace and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--long", action="store_true", help="print files, callbacks and the call stack at the end"
    )
    long = parser.parse_args().long
    show("pass", traced(PASS, lambda file, name: False), long=long)
    show("operation", traced(OPERATION, to_the_vendor), long=long)


if __name__ == "__main__":
    main()
