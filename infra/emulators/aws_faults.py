"""A DynamoDB client that fails on request, with errors that emulators do not raise by themselves.

Pass it to `Store(wrap=...)`. A fault replaces the call, or follows it (the write happened, but its
response is lost), or runs code of the test before it (another process is faster).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from botocore.exceptions import ClientError, ReadTimeoutError


def busy(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "injected"}}, "Injected")


def cancelled(*reasons: str) -> ClientError:
    """Return a cancelled transaction with a reason per item, e.g. None, TransactionConflict."""
    answer: Any = {
        "Error": {"Code": "TransactionCanceledException", "Message": "injected"},
        "CancellationReasons": [{"Code": reason} for reason in reasons],
    }
    return ClientError(answer, "TransactWriteItems")


def lost_answer() -> ReadTimeoutError:
    return ReadTimeoutError(endpoint_url="injected")


class Strike(NamedTuple):
    """A fault of one call: an error instead of the call, or an error instead of its response."""

    instead: Exception | None = None
    after: Exception | None = None


Ask = Callable[[str, dict[str, Any]], Strike]


def nothing(method: str, arguments: dict[str, Any]) -> Strike:
    del method, arguments
    return Strike()


class AwsFaults:
    """A script of faults by botocore's method name. Use: `faults = Faults();
    Store(..., wrap=faults.wrap)`.

    ask: decides about every call for which the script has no entry, in the order of the calls.
    """

    def __init__(self) -> None:
        self.ask: Ask = nothing
        self._instead: dict[str, list[Exception | None]] = {}
        self._after: dict[str, list[Exception]] = {}
        self._before: dict[str, list[Callable[[], object]]] = {}
        self.calls: list[str] = []

    def instead(self, method: str, *errors: Exception | None) -> None:
        """Raise these errors instead of the next calls of the method; None lets a call through."""
        self._instead.setdefault(method, []).extend(errors)

    def after(self, method: str, *errors: Exception) -> None:
        """Execute the next calls and raise these errors instead of returning their responses."""
        self._after.setdefault(method, []).extend(errors)

    def before(self, method: str, *actions: Callable[[], object]) -> None:
        self._before.setdefault(method, []).extend(actions)

    def wrap(self, client: Any) -> Any:
        return _Faulty(client, self)

    def play(self, method: str, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
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


class FunctionKilled(BaseException):
    """The function crashed. Not an Exception, so that no handler catches it."""


class Life:
    """One process of a function. at_checkpoint: called at each checkpoint, returns whether
    the process crashes there."""

    def __init__(self, at_checkpoint: Callable[[str], bool]) -> None:
        self._at_checkpoint = at_checkpoint
        self.died_at = ""

    def checkpoint(self, place: str) -> None:
        """Implements Runtime.checkpoint. Raises Killed if the process must crash."""
        self.check()
        if self._at_checkpoint(place):
            self.died_at = place
            raise FunctionKilled(place)

    def check(self) -> None:
        if self.died_at:
            raise FunctionKilled(self.died_at)


class Mortal:
    """A client that works until its owner crashes."""

    def __init__(self, client: Any, life: Life) -> None:
        self._client, self._life = client, life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._life.check()
            return found(*args, **kwargs)

        return call


class Death(msgspec.Struct):
    """An injected crash: the next `times` invocations of `function` ("" for any) that
    reach `place` crash there."""

    place: str
    function: str
    times: int
