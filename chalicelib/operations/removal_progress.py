"""Records a removal's progress per node as text in the operation's row, because no other state
of it outlives a process.

A node that is given up is first recorded as such and only then rolled back. In the reverse order, a
crash between the two would repeat the step on a node without its taint, and the step might find no
reason to give it up any more.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress
from chalicelib.operations.waiting import PollBackoff

KEY = "own.removal"
"""The key in the operation's data."""
REQUESTED = frozenset({"delete", "poll", "leave"})
"""Steps that may have sent a delete request to the vendor, even if the
attempt left no other trace."""


class NodeProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """One target; the names of the fields are stored. cordoned: by Outscaler, which therefore
    uncordons it. kept: why the node stays, empty while it is to be removed. undone: the node
    carries no changes of Outscaler any more.

    group: the priority of the pod group being evicted (steps/drain.py), None before the first;
    wait: how long its evictions have been requested, or, once all are granted, how long its pods
    have been waited for. asked: fingerprints of the pods whose eviction was granted, so that no pod
    is evicted or reported twice; daemons: fingerprints of the DaemonSet pods that are evicted like
    others; stuck: of pods that are not waited for any longer. blocked: the first refusal of this
    round. unready: it is repaired, and its kubelet did not answer when the operation began.
    restarting: since when the vendor may have been asked to restart it, epoch seconds; boot,
    ready_since: what its Node said just before. sound: how long a node that its vendor takes back
    has shown no signal any more."""

    cordoned: bool = False
    daemons_asked: bool = False
    daemons: tuple[int, ...] = ()
    group: int | None = None
    granted: bool = False
    wait: PollBackoff = PollBackoff()
    asked: tuple[int, ...] = ()
    stuck: tuple[int, ...] = ()
    blocked: str = ""
    unready: bool = False
    kept: str = ""
    cls: str = ""
    code: str = ""
    undone: bool = False
    restarting: float = 0.0
    boot: str = ""
    ready_since: float = 0.0
    sound: PollBackoff = PollBackoff()


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole removal. wait: of the present step, where it is one wait for all nodes. cursor: the
    last pod requested in this round of evictions; again: the longest pause that its refusals asked
    for, in seconds. looked: when the nodes were last verified, epoch seconds. ordered: the vendor
    may have received a request about the nodes. resume, resume_after: the step to continue with
    after the rollback of single nodes; undoing: how long the rollback has taken."""

    nodes: dict[str, NodeProgress] = {}
    wait: PollBackoff = PollBackoff()
    cursor: str = ""
    again: float = 0.0
    looked: float = 0.0
    ordered: bool = False
    resume: str = ""
    resume_after: float = 0.0
    undoing: PollBackoff = PollBackoff()

    @property
    def live(self) -> tuple[str, ...]:
        """Return the nodes still to be removed, by name."""
        return tuple(sorted(name for name, node in self.nodes.items() if not node.kept))

    @property
    def to_undo(self) -> tuple[str, ...]:
        """Return the nodes given up whose rollback has not been confirmed."""
        return tuple(
            sorted(name for name, node in self.nodes.items() if node.kept and not node.undone)
        )

    def change(self, name: str, **changes: object) -> Progress:
        """Return the progress with fields of one node replaced."""
        node = msgspec.structs.replace(self.nodes.get(name, NodeProgress()), **changes)
        return msgspec.structs.replace(self, nodes={**self.nodes, name: node})

    def give_up(self, name: str, cls: str, why: str, *, untouched: bool = False) -> Progress:
        """Give one node up: it stays. untouched: the node was not changed yet."""
        return self.change(name, kept=why, cls=cls, undone=untouched)

    def failure(self) -> Failed:
        """Return the failure when no node is left to remove: the error class of the first node, and
        the reasons of all nodes."""
        nodes = [(name, self.nodes[name]) for name in sorted(self.nodes) if self.nodes[name].kept]
        first = nodes[0][1] if nodes else NodeProgress(cls="InvalidRequest")
        text = (
            "; ".join(f"node {name}: {node.kept}" for name, node in nodes)
            or "no node to remove was named"
        )
        return Failed(first.cls, text, code=first.code, facts={"kept": len(nodes)})


def read(operation: Operation) -> Progress:
    """Return the progress stored in the operation; an operation without any starts at the
    beginning. Progress that cannot be decoded raises nothing, because otherwise no step could end
    the operation: its nodes are given up or, once the vendor was called, the removal is
    completed."""
    text = operation.status.data.get(KEY)
    if text is None:
        return Progress()
    names = sorted({target.node for target in operation.spec.targets})
    try:
        progress = msgspec.json.decode(text, type=Progress)
    except (msgspec.MsgspecError, UnicodeError):
        progress = Progress()
    if sorted(progress.nodes) == names:
        return progress
    node = (
        NodeProgress()
        if operation.status.step in ("poll", "confirm")
        else NodeProgress(kept="how far its removal had come cannot be read", cls="InvalidRequest")
    )
    return Progress(dict.fromkeys(names, node), ordered=True)


def stay_in_step(
    operation: Operation, progress: Progress, step: str, after: float, note: str = ""
) -> InProgress:
    """Run `step` (again) after this many seconds, with this progress recorded."""
    data = {**operation.status.data, KEY: msgspec.json.encode(progress).decode()}
    return InProgress(after, step, data, note)


def next_step(
    operation: Operation, progress: Progress, step: str, after: float = 0.0
) -> InProgress:
    """Go to the next step after rolling back the nodes given up in this one. A new
    step starts without a clock."""
    ordered = progress.ordered or operation.status.step in REQUESTED
    fresh = msgspec.structs.replace(
        progress, wait=PollBackoff(), cursor="", again=0.0, ordered=ordered
    )
    if fresh.to_undo or not fresh.live:
        return stay_in_step(
            operation, msgspec.structs.replace(fresh, resume=step, resume_after=after), "undo", 0.0
        )
    return stay_in_step(operation, fresh, step, after)
