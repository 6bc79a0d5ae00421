"""The file of a recorded decision: a line of JSON that every release can read, and the
compressed inputs of the plan.

The line names the release, so a release that cannot read the rest can say which one can. A file is
foreign until its digest was compared, and bounded before and after it is decompressed.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

import chalicelib
from chalicelib.model.api_integers import unbounded_numbers
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import SCALE_DOWN_DISABLED, Node
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.struct_form import form_of
from chalicelib.plan.state.managed_groups import used_candidates
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess

MAGIC = "outscaler-decision"
FORMAT = 1
"""Increase it when the same bytes mean something else although no type has changed."""

LARGEST_FILE, LARGEST = 20 * 2**20, 256 * 2**20
"""Bytes of a file, and of what is in it decompressed."""
_LONGEST_LINE = 2000
_LATEST = 1e10  # epoch seconds: the year 2286
_SUFFIX = ".decision"
_KEY = re.compile(
    r"(?:.*/)?(?P<cluster>[^/]+)/(?P<day>\d{4}-\d\d-\d\d)/(?P<time>\d{6})-(?P<plan>[^/"
    r"]+)\.decision\Z"
)


class TooLarge(OutscalerError):
    """The decision has more data than is recorded."""


class RecordedDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a plan was made from, and the plan. now: epoch seconds. acted: whether the
    plan's operations were carried out; they have the seed as their token then."""

    snapshot: Snapshot
    policy: Policy
    memory: Memory
    now: float
    seed: int
    plan: Plan
    acted: bool = False


class DecisionHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The first line of a file. form: digest of the types; digest: SHA-256
    of what follows the line."""

    kind: str
    format: int
    release: str
    form: str
    cluster: str
    plan: str
    at: float
    digest: str


class DecisionKey(msgspec.Struct, frozen=True, order=True):
    """Where a decision is stored, below the place of all decisions. at:
    `YYYY-MM-DD/HHMMSS` in UTC."""

    cluster: str
    at: str
    plan: str

    def path(self) -> str:
        """Return the path below the place of all decisions."""
        return f"{self.cluster}/{self.at}-{self.plan}{_SUFFIX}"


def key_of(decision: RecordedDecision) -> DecisionKey:
    """Return where this decision is stored."""
    return key_at(decision.snapshot.cluster, decision.now, decision.plan.id)


def key_at(cluster: str, at: float, plan: str) -> DecisionKey:
    """Return where a decision of this instant (epoch seconds) is stored. plan: its id."""
    return DecisionKey(cluster, datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d/%H%M%S"), plan)


def key_from(path: str) -> DecisionKey | None:
    """Return the key in a path; None for a path that is of nothing else."""
    match = _KEY.match(path)
    return (
        DecisionKey(match["cluster"], f"{match['day']}/{match['time']}", match["plan"])
        if match
        else None
    )


def form_version() -> str:
    """Return the digits that stand for the types of a recorded decision in this release."""
    return form_of(RecordedDecision, FORMAT)


def encode(decision: RecordedDecision) -> bytes:
    """Return the file. Raises TooLarge."""
    data = msgspec.msgpack.encode(decision)
    if len(data) > LARGEST:
        raise TooLarge(f"the decision has {len(data)} bytes; {LARGEST} is the limit")
    packed = zlib.compress(data, 3)
    header = DecisionHeader(
        kind=MAGIC,
        format=FORMAT,
        release=chalicelib.__version__,
        form=form_version(),
        cluster=decision.snapshot.cluster,
        plan=decision.plan.id,
        at=decision.now,
        digest=hashlib.sha256(packed).hexdigest(),
    )
    file = msgspec.json.encode(header) + b"\n" + packed
    if len(file) > LARGEST_FILE:
        raise TooLarge(
            f"the decision has {len(file)} bytes compressed; {LARGEST_FILE} is the limit"
        )
    return file


def header_of(data: bytes, place: str) -> DecisionHeader:
    """Return the first line. place: the file, for errors. Raises BadInput
    for a file of another kind."""
    line = data[:_LONGEST_LINE].partition(b"\n")[0]
    try:
        header = msgspec.json.decode(line, type=DecisionHeader)
    except (msgspec.MsgspecError, ValueError):
        header = None
    if header is None or header.kind != MAGIC:
        raise BadInput(
            place, "is not a recorded decision", "give a file that Outscaler has recorded"
        )
    return header


def decode(data: bytes, place: str) -> tuple[DecisionHeader, RecordedDecision]:
    """Return what a file holds. place: the file, for errors. Raises BadInput for a file of another
    kind, a damaged one, or one of a release whose types this release cannot read."""
    header = header_of(data, place)
    packed = data.partition(b"\n")[2]
    if hashlib.sha256(packed).hexdigest() != header.digest:
        raise BadInput(place, "is damaged: its digest is another one", "fetch the file again")
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(packed, LARGEST + 1)
        if len(plain) > LARGEST or not unpacker.eof or unpacker.unused_data:
            raise ValueError("its length is wrong")
        decision = msgspec.msgpack.decode(plain, type=RecordedDecision)
        if mistake := next(_mistakes(decision), ""):
            raise ValueError(mistake)
        return header, decision
    except (zlib.error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        if header.form != form_version() or header.format != FORMAT:
            own = chalicelib.__version__
            problem = (
                f"was made by release {header.release}, whose data this release ({own}) cannot read"
            )
            raise BadInput(
                place, problem, f"install release {header.release} for this replay"
            ) from None
        raise BadInput(place, f"is damaged ({str(error)[:100]})", "fetch the file again") from None


def _mistakes(decision: RecordedDecision) -> Iterator[str]:
    """Yield what the planner cannot work with, and no pass records. The types alone permit it."""
    snapshot = decision.snapshot
    if not 0.0 <= decision.now < _LATEST:
        yield f"now is {decision.now:g}"
    numbers = {
        "pods": [pod.cls for pod in snapshot.pods],
        "daemonsets": [ds.cls for ds in snapshot.daemonsets],
    }
    for kind, class_numbers in numbers.items():
        for at, number in enumerate(class_numbers):
            if not 0 <= number < len(snapshot.classes):
                yield f"{kind}[{at}].cls is {number} of {len(snapshot.classes)}"
    yield from unbounded_numbers(decision, "decision")


# -- what the planner reads ------------------------------------------------------------------------

# beginning of the annotations of this autoscaler, which the planner reads
_OWN_ANNOTATIONS = "outscaler.dev/"


def reduced(decision: RecordedDecision) -> RecordedDecision:
    """Return the decision with what the planner reads only: annotations, addresses and names of
    secrets are of no use to it. It makes the same plan.

    Of the candidates those stay that were used. Providers keep their names, which schedules compare
    with those of groups.
    """
    snapshot, policy, memory = decision.snapshot, decision.policy, decision.memory
    lean = msgspec.structs.replace(
        snapshot,
        nodes=tuple(map(_reduced_node, snapshot.nodes)),
        groups=tuple(map(_reduced_group, snapshot.groups)),
        candidates=tuple(map(_reduced_group, used_candidates(snapshot))),
    )
    templates = {
        name: msgspec.structs.replace(learnt, node=_reduced_node(learnt.node))
        for name, learnt in memory.templates.items()
    }
    policy = msgspec.structs.replace(
        policy,
        kubernetes=KubernetesAccess(),
        webhook=Webhook(),
        notifications=None,
        providers={name: {} for name in policy.providers},
        pauses=tuple(msgspec.structs.replace(pause, by="") for pause in policy.pauses),
    )
    return msgspec.structs.replace(
        decision,
        snapshot=lean,
        policy=policy,
        memory=msgspec.structs.replace(memory, templates=templates),
    )


def _reduced_group(group: NodeGroup) -> NodeGroup:
    if group.template is None:
        return group
    return msgspec.structs.replace(group, template=_reduced_node(group.template))


def _reduced_node(node: Node) -> Node:
    annotations = {
        key: text
        for key, text in node.annotations.items()
        if key == SCALE_DOWN_DISABLED or key.startswith(_OWN_ANNOTATIONS)
    }
    if len(annotations) == len(node.annotations):
        return node
    return msgspec.structs.replace(node, annotations=annotations)
