"""A DynamoDB client that fails on request, with the errors that no emulator ever raises by itself.

Give it to `Store(wrap=...)`. A fault strikes instead of the call, or after it (the write happened, its answer is
lost), or runs something of the test's before it (another process is faster).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ReadTimeoutError


def busy(code: str) -> ClientError:
    """Throttling or conflict of a single call, e.g. ThrottlingException."""
    return ClientError({"Error": {"Code": code, "Message": "injected"}}, "Injected")


def cancelled(*reasons: str) -> ClientError:
    """A cancelled transaction, with a reason per item, e.g. None, TransactionConflict."""
    answer: Any = {
        "Error": {"Code": "TransactionCanceledException", "Message": "injected"},
        "CancellationReasons": [{"Code": reason} for reason in reasons],
    }
    return ClientError(answer, "TransactWriteItems")


def lost_answer() -> ReadTimeoutError:
    """The network gave up waiting."""
    return ReadTimeoutError(endpoint_url="injected")


class Strike(NamedTuple):
    """What goes wrong with one call: an error in its place, or one instead of its answer."""

    instead: Exception | None = None
    after: Exception | None = None


Ask = Callable[[str, dict[str, Any]], Strike]


def nothing(method: str, arguments: dict[str, Any]) -> Strike:
    """An Ask: all goes well."""
    del method, arguments
    return Strike()


class AwsFaults:
    """A script of faults, by botocore's method name. Use: `faults = Faults(); Store(..., wrap=faults.wrap)`.

    ask: decides about every call for which the script has nothing, in the order of the calls.
    """

    def __init__(self) -> None:
        self.ask: Ask = nothing
        self._instead: dict[str, list[Exception | None]] = {}
        self._after: dict[str, list[Exception]] = {}
        self._before: dict[str, list[Callable[[], object]]] = {}
        self.calls: list[str] = []

    def instead(self, method: str, *errors: Exception | None) -> None:
        """Raise these in place of the next calls of the method; None lets a call through."""
        self._instead.setdefault(method, []).extend(errors)

    def after(self, method: str, *errors: Exception) -> None:
        """Let the next calls happen and raise these instead of giving their answers."""
        self._after.setdefault(method, []).extend(errors)

    def before(self, method: str, *actions: Callable[[], object]) -> None:
        """Do these before the next calls."""
        self._before.setdefault(method, []).extend(actions)

    def wrap(self, client: Any) -> Any:
        """The client with the script in front of it."""
        return _Faulty(client, self)

    def play(self, method: str, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """One call of the client."""
        self.calls.append(method)
        if actions := self._before.get(method):
            actions.pop(0)()
        if (errors := self._instead.get(method)) and (error := errors.pop(0)) is not None:
            raise error
        strike = self.ask(method, arguments)
        if strike.instead is not None:
            raise strike.instead
        answer = call(**arguments)
        if late := self._after.get(method):
            raise late.pop(0)
        if strike.after is not None:
            raise strike.after
        return answer


class _Faulty:
    def __init__(self, client: Any, faults: AwsFaults) -> None:
        self._client, self._faults = client, faults

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._client, method)
        return lambda **arguments: self._faults.play(method, call, arguments)
