"""The root of the error tree, and the error for invalid user input.

    OutscalerError
    ├── BadInput                      model/errors.py      the user can correct it: names the
                                                           place and the correct form
    ├── ProviderError                 providers/kit/errors.py  Throttled, OutOfStock, QuotaExceeded,
                                                           Unauthorized, NotFound,
    │                                                      Conflict, InvalidRequest, Transient,
                                                           Unknown
    ├── MemoryExceeded                model/errors.py      a cluster needs more memory than the
                                                           function has
    ├── ClusterError                  cluster/errors.py       the cluster's API refused or did not
                                                           answer
    └── StoreError                    store/errors.py      lease held or lost, stale write,
                                                           throttled

Only BadInput may reach a user unchanged (one line, exit 2 or a 4xx). A pass treats the others
as values: they become missing data, a verdict or a back-off, and the rest continues.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class OutscalerError(Exception):
    """Base class of every error that this program raises on purpose."""

    published_name: ClassVar[str] = ""


def published_name(error: BaseException) -> str:
    """The name of an error in the table, the journal, metrics and logs; it stays
    if the class is renamed."""
    name: str = getattr(error, "published_name", "")
    return name or type(error).__name__


class BadInput(OutscalerError):
    """User input cannot be used.

    place:   where, in the user's terms: `nodes.json: items[3].status`, `spec.nodeGroups[0].max`
    problem: what is wrong
    remedy:  what would be correct
    """

    def __init__(self, place: str, problem: str, remedy: str = "") -> None:
        self.place, self.problem, self.remedy = place, problem, remedy
        super().__init__(place, problem, remedy)

    def __str__(self) -> str:
        text = f"{self.place}: {self.problem}"
        return f"{text}; {self.remedy}" if self.remedy else text


class InputErrors(BadInput):
    """Several errors in one document, reported together."""

    published_name = "BadInputs"

    def __init__(self, problems: tuple[BadInput, ...]) -> None:
        self.problems = problems
        first = problems[0]
        super().__init__(first.place, first.problem, first.remedy)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class MemoryExceeded(OutscalerError):
    """A pass takes so much of its function's memory that it could not end."""


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
"""The errors that decoding a foreign object may raise, whatever its content. They are
caught around each object, so that a malformed one is reported as missing data with its
name and never ends a pass."""
