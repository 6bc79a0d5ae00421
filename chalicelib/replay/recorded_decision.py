"""The file of a recorded decision: a line of JSON that every release can read, and the compressed inputs of the plan.

The line names the release, so a release that cannot read the rest can say which one can. A file is foreign until its
digest was compared, and bounded before and after it is decompressed.
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
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.struct_form import form_of

MAGIC = "outscaler-decision"
FORMAT = 1
"""Increase it when the same bytes mean something else although no type has changed."""

LARGEST_FILE, LARGEST = 20 * 2**20, 256 * 2**20
"""Bytes of a file, and of what is in it decompressed."""
_LONGEST_LINE = 2000
_LATEST = 1e10  # epoch seconds: the year 2286
_SUFFIX = ".decision"
_KEY = re.compile(r"(?:.*/)?(?P<cluster>[^/]+)/(?P<day>\d{4}-\d\d-\d\d)/(?P<time>\d{6})-(?P<plan>[^/]+)\.decision\Z")


class TooLarge(OutscalerError):
    """The decision has more data than is recorded."""


class RecordedDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a plan was made from, and the plan. now: epoch seconds. acted: whether the plan's operations were
    carried out; they have the seed as their token then."""

    snapshot: Snapshot
    policy: Policy
    memory: Memory
    now: float
    seed: int
    plan: Plan
    acted: bool = False


class DecisionHeader(msgspec.Struct, frozen=True, rename="camel"):
    """The first line of a file. form: digest of the types; digest: SHA-256 of what follows the line."""

    kind: str
    format: int
    release: str
    form: str
    cluster: str
    plan: str
    at: float
    digest: str


class DecisionKey(msgspec.Struct, frozen=True, order=True):
    """Where a decision is stored, below the place of all decisions. at: `YYYY-MM-DD/HHMMSS` in UTC."""

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
    found = _KEY.match(path)
    return DecisionKey(found["cluster"], f"{found['day']}/{found['time']}", found["plan"]) if found else None


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
    made = msgspec.json.encode(header) + b"\n" + packed
    if len(made) > LARGEST_FILE:
        raise TooLarge(f"the decision has {len(made)} bytes compressed; {LARGEST_FILE} is the limit")
    return made


def header_of(data: bytes, place: str) -> DecisionHeader:
    """Return the first line. place: the file, for errors. Raises BadInput for a file of another kind."""
    line = data[:_LONGEST_LINE].partition(b"\n")[0]
    try:
        header = msgspec.json.decode(line, type=DecisionHeader)
    except (msgspec.MsgspecError, ValueError):
        header = None
    if header is None or header.kind != MAGIC:
        raise BadInput(place, "is not a recorded decision", "give a file that Outscaler has recorded")
    return header


def decode(data: bytes, place: str) -> tuple[DecisionHeader, RecordedDecision]:
    """Return what a file holds. place: the file, for errors. Raises BadInput for a file of another kind, a damaged one,
    or one of a release whose types this release cannot read."""
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
            problem = f"was made by release {header.release}, whose data this release ({own}) cannot read"
            raise BadInput(place, problem, f"install release {header.release} for this replay") from None
        raise BadInput(place, f"is damaged ({str(error)[:100]})", "fetch the file again") from None


def _mistakes(decision: RecordedDecision) -> Iterator[str]:
    """Yield what the planner cannot work with, and no pass records. The types alone permit it."""
    snapshot = decision.snapshot
    if not 0.0 <= decision.now < _LATEST:
        yield f"now is {decision.now:g}"
    classes = (("pods", [pod.cls for pod in snapshot.pods]), ("daemonsets", [one.cls for one in snapshot.daemonsets]))
    for kind, numbers in classes:
        for at, number in enumerate(numbers):
            if not 0 <= number < len(snapshot.classes):
                yield f"{kind}[{at}].cls is {number} of {len(snapshot.classes)}"
    yield from unbounded_numbers(decision, "decision")
