"""The root of the one error tree, and the error a person's input deserves.

    OutscalerError
    ├── BadInput                      model/errors.py      the user can mend it: names the place and what would be right
    ├── ProviderError                 providers/errors.py  Throttled, OutOfStock, QuotaExceeded, Unauthorized, NotFound,
    │                                                      Conflict, InvalidRequest, Transient, Unknown
    ├── ClusterError                  kube/errors.py       the cluster's API said no, or nothing
    └── StoreError                    store/errors.py      lease held or lost, stale write, throttled

Only BadInput may reach a user as it stands (one line, exit 2 or a 4xx). The others are values to the pass that meets
them: they become a gap, a verdict or a back-off, and the rest goes on.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class OutscalerError(Exception):
    """Anything this program raises on purpose."""

    published_name: ClassVar[str] = ""


def published_name(error: BaseException) -> str:
    """The name of an error in the table, the journal, metrics and logs; it stays if the class is renamed."""
    name: str = getattr(error, "published_name", "")
    return name or type(error).__name__


class BadInput(OutscalerError):
    """Something a person wrote cannot be used.

    place:   where, as the person would find it: `nodes.json: items[3].status`, `spec.nodeGroups[0].max`
    problem: what is there
    remedy:  what would be right
    """

    def __init__(self, place: str, problem: str, remedy: str = "") -> None:
        self.place, self.problem, self.remedy = place, problem, remedy
        super().__init__(place, problem, remedy)

    def __str__(self) -> str:
        text = f"{self.place}: {self.problem}"
        return f"{text}; {self.remedy}" if self.remedy else text


class InputErrors(BadInput):
    """Several mistakes in one document, all of them at once (architecture §7)."""

    published_name = "BadInputs"

    def __init__(self, problems: tuple[BadInput, ...]) -> None:
        self.problems = problems
        first = problems[0]
        super().__init__(first.place, first.problem, first.remedy)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


MALFORMED: tuple[type[Exception], ...] = (
    BadInput,
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What reading one object of others may raise, whatever it holds. Caught around each object, so that a bad one is a gap
that names it and never ends a pass."""
