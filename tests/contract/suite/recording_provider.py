"""A provider under watch: everything it says, in whatever form it would get into a log, a row or an event, is kept.

The suite looks through all of it for secrets after every test. So no test has to think of it, and none can forget.
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
from chalicelib.providers.base import Observation, Provider

T = TypeVar("T")


class Ear(logging.Handler):
    """Keeps what is said. texts: in order."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s %(exc_text)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self.texts.append(self.format(record))

    def hear(self, value: object) -> None:
        """A value as people and rows would see it: its repr, its text, and as JSON where it can be that."""
        self.texts += [repr(value), str(value)]
        if isinstance(value, msgspec.Struct):
            self.texts.append(msgspec.json.encode(value).decode())

    def hear_error(self, error: BaseException) -> None:
        """Its text, repr and attributes, and the whole traceback, with every error it is chained to."""
        self.texts += [repr(error), str(error), repr(vars(error)), "".join(traceback.format_exception(error))]
        if error.__context__ is not None:
            self.hear_error(error.__context__)

    def leaked(self, secrets: Sequence[str]) -> list[str]:
        """What was said with a secret in it, the secret's first letters only."""
        return [
            f"{secret[:4]}…: {text[:200].replace(secret, '<SECRET>')}"
            for text in self.texts
            for secret in secrets
            if secret and secret in text
        ]


class RecordingProvider:
    """See Provider; passes everything on."""

    def __init__(self, provider: Provider, ear: Ear) -> None:
        self._provider, self._ear, self._calls = provider, ear, 0
        self._look()

    @property
    def name(self) -> str:
        """See Provider."""
        return self._provider.name

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """See Provider."""
        return self._heard(lambda: self._provider.observe(nodes))

    def grow(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.grow(operation))

    def remove(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.remove(operation))

    def release(self, operation: Operation) -> bool:
        """See Provider."""
        return self._heard(lambda: self._provider.release(operation))

    def shrink_target(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.shrink_target(operation))

    def poll(self, operation: Operation) -> Outcome:
        """See Provider."""
        return self._heard(lambda: self._provider.poll(operation))

    def _heard(self, call: Callable[[], T]) -> T:
        try:
            answer = call()
        except Exception as error:
            self._ear.hear_error(error)
            raise
        finally:
            self._calls += 1
            if self._calls == 1:
                self._look()  # what is read late, as credentials are
        self._ear.hear(answer)
        return answer

    def _look(self) -> None:
        for part in _parts(self._provider):
            self._ear.texts += [repr(part), str(part)]


def _parts(whole: object) -> Iterator[object]:
    """Everything of ours that can be reached from a provider: each may end up in a log by its repr."""
    seen: set[int] = set()
    todo = [whole]
    while todo:
        part = todo.pop()
        if id(part) in seen or callable(part):
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
