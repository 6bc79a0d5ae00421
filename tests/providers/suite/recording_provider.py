"""A provider under observation: everything it outputs, in any form that could reach a log, a row
or an event, is recorded.

The suite searches all of it for secrets after every test, so no test has to do that itself.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.kit.base import NodeRestarter, Observation, Provider

T = TypeVar("T")
# most values; none of our objects is below them
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


class Ear(logging.Handler):
    """Records output. texts: in order."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s %(exc_text)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self.texts.append(self.format(record))

    def hear(self, value: object) -> None:
        """Records a value as users and rows would see it: its repr, its text,
        and as JSON where possible."""
        self.texts += [repr(value), str(value)]
        if isinstance(value, msgspec.Struct):
            self.texts.append(msgspec.json.encode(value).decode())

    def hear_error(self, error: BaseException) -> None:
        """Records an error's text, repr and attributes, and the whole traceback
        with all chained errors."""
        self.texts += [
            repr(error),
            str(error),
            repr(vars(error)),
            "".join(traceback.format_exception(error)),
        ]
        if error.__context__ is not None:
            self.hear_error(error.__context__)

    def leaked(self, secrets: Sequence[str]) -> list[str]:
        """Returns the recorded texts that contain a secret, with only the
        first letters of the secret."""
        return [
            f"{secret[:4]}…: {text[:200].replace(secret, '<SECRET>')}"
            for text in self.texts
            for secret in secrets
            if secret and secret in text
        ]


class RecordingProvider:
    """See Provider; forwards everything."""

    def __init__(self, provider: Provider, ear: Ear) -> None:
        self._provider, self._ear, self._calls = provider, ear, 0

    @property
    def name(self) -> str:
        """See Provider."""
        return self._provider.name

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """See Provider."""
        return self._heard(lambda: self._provider.observe(nodes))

    def scale_up(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.scale_up(operation))

    def has_requested(self, operation: Operation) -> bool:
        """See Provider."""
        return self._heard(lambda: self._provider.has_requested(operation))

    def delete_nodes(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.delete_nodes(operation))

    def cancel_delete(self, operation: Operation) -> bool:
        """See Provider."""
        return self._heard(lambda: self._provider.cancel_delete(operation))

    def decrease_target(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.decrease_target(operation))

    def poll(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.poll(operation))

    def restart(self, operation: Operation) -> Outcome:
        """See NodeRestarter."""
        assert isinstance(self._provider, NodeRestarter)
        restart = self._provider.restart
        return self._heard(lambda: restart(operation))

    def _heard(self, call: Callable[[], T]) -> T:
        try:
            answer = call()
        except Exception as error:
            self._ear.hear_error(error)
            raise
        finally:
            self._calls += 1
            if self._calls == 1:
                self._look()  # now it has the values that are read late, such as credentials
        self._ear.hear(answer)
        return answer

    def _look(self) -> None:
        for part in _parts(self._provider):
            self._ear.texts.append(repr(part))
            if type(part).__str__ is not object.__str__:
                self._ear.texts.append(str(part))


def _parts(whole: object) -> Iterator[object]:
    """Returns all of our objects that are reachable from a provider: each may end
    up in a log by its repr."""
    seen: set[int] = set()
    todo = [whole]
    while todo:
        part = todo.pop()
        if type(part) in _PLAIN or id(part) in seen or callable(part):
            continue
        seen.add(id(part))
        if isinstance(part, Mapping):
            todo += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            todo += part
        elif type(part).__module__.startswith("chalicelib."):
            yield part
            names = [
                *getattr(part, "__dict__", ()),
                *getattr(part, "__struct_fields__", ()),
                *getattr(part, "__slots__", ()),
            ]
            todo += [getattr(part, name, None) for name in names]
