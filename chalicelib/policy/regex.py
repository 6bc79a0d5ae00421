"""Go's regular expressions for group ids, because the priorities' ConfigMap is written in them (scale-up.md §8).

Why not `re`: it means other things by the same signs, takes what Go refuses (a look-ahead, a back-reference), and with
a pattern such as `(a+)+$` one ConfigMap could hold a function until its time is over. Here a pattern is a set of
places, moved along the text all at once, so a search takes time in proportion to pattern times text and no more.
Only whether a pattern is found is asked; so lazy or greedy, named or not, makes no difference and is read over.
Not available, and refused by name: Unicode classes (`\\p{…}`), `\\C`, and patterns over 1,000 characters or 2,000
places (`a{100}` has a hundred).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from chalicelib.model.errors import BadInput
from chalicelib.policy.regex_syntax import Assertion, Chars, Either, Repeat, Row, Tree, parse

MOST_CHARACTERS, MOST_PLACES = 1000, 2000
_MOST_REMEMBERED = 4096  # steps of one pattern
_MOST_KEPT = 100_000  # places in all remembered steps of one pattern: a step of a large one has hundreds


class _Place(NamedTuple):
    """One place in the program. Exactly one of chars, assertion and ways is meant; none of them: found."""

    chars: Chars | None = None
    assertion: str = ""
    ways: tuple[int, ...] = ()


class _Step(NamedTuple):
    """Over one character: whether the pattern is found, the places after it, and how many were looked at."""

    found: bool
    there: frozenset[int]
    looked: int


class Pattern:
    """A compiled pattern; it remembers the steps it has made, up to a limit."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise BadInput("", f"a pattern of {len(text)} characters is too long", f"at most {MOST_CHARACTERS}")
        self.text = text
        self._places: list[_Place] = []
        self._emit(parse(text))
        self._add(_Place())
        self._steps: dict[tuple[frozenset[int], str, str], _Step] = {}
        self._kept = 0

    @property
    def size(self) -> int:
        """How many places it has: what one character of a text costs at most."""
        return len(self._places)

    def found_in(self, text: str) -> bool:
        """Whether it is found anywhere in the text."""
        return self.searched(text)[0]

    def forget(self) -> None:
        """No step is remembered any more, so that `searched` counts from the beginning."""
        self._steps.clear()
        self._kept = 0

    def searched(self, text: str) -> tuple[bool, int]:
        """Whether it is found anywhere in the text, and what that took: places looked at, where a step was not
        remembered, and one more for every 32 characters."""
        here: frozenset[int] = frozenset()
        before, looked = "", len(text) // 32
        for after in (*text, ""):
            step = (here, before, after)
            made = self._steps.get(step)
            if made is None:
                if len(self._steps) >= _MOST_REMEMBERED or self._kept > _MOST_KEPT:
                    self.forget()
                made = self._steps[step] = self._step(*step)
                self._kept += len(made.there)
                looked += made.looked
            here = made.there
            if made.found:
                return True, looked
            before = after
        return False, looked

    def _step(self, here: frozenset[int], before: str, after: str) -> _Step:
        """From these places, and from the start once more, over one character (none at the text's end)."""
        waiting, seen, there = [0, *here], set[int](), set[int]()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            place = self._places[at]
            if place.chars is not None:
                if after and place.chars.has(after):
                    there.add(at + 1)
            elif place.assertion:
                if _holds(place.assertion, before, after):
                    waiting.append(at + 1)
            elif place.ways:
                waiting.extend(place.ways)
            else:
                return _Step(found=True, there=frozenset(), looked=len(seen))
        return _Step(found=False, there=frozenset(there), looked=len(seen))

    def _add(self, place: _Place) -> int:
        if len(self._places) >= MOST_PLACES:
            raise BadInput("", "the pattern repeats too much", "write smaller numbers between { and }")
        self._places.append(place)
        return len(self._places) - 1

    def _fork(self) -> int:
        return self._add(_Place(ways=(0,)))  # its ways are known later

    def _emit(self, tree: Tree) -> None:
        if isinstance(tree, Chars):
            self._add(_Place(chars=tree))
        elif isinstance(tree, Assertion):
            self._add(_Place(assertion=tree.kind))
        elif isinstance(tree, Row):
            for part in tree.parts:
                self._emit(part)
        elif isinstance(tree, Either):
            self._emit_either(tree)
        else:
            self._emit_repeat(tree)

    def _emit_either(self, tree: Either) -> None:
        ends = []
        for part in tree.parts[:-1]:
            fork = self._fork()
            self._emit(part)
            ends.append(self._fork())
            self._places[fork] = _Place(ways=(fork + 1, len(self._places)))
        self._emit(tree.parts[-1])
        for end in ends:
            self._places[end] = _Place(ways=(len(self._places),))

    def _emit_repeat(self, tree: Repeat) -> None:
        for _ in range(tree.least):
            before = len(self._places)
            self._emit(tree.part)
            if len(self._places) == before:  # nothing, however often
                break
        if tree.most is None:
            fork = self._fork()
            self._emit(tree.part)
            self._add(_Place(ways=(fork,)))
            self._places[fork] = _Place(ways=(fork + 1, len(self._places)))
            return
        forks = []
        for _ in range(tree.most - tree.least):
            forks.append(self._fork())
            self._emit(tree.part)
        for fork in forks:
            self._places[fork] = _Place(ways=(fork + 1, len(self._places)))


@lru_cache(maxsize=2048)  # more than a ConfigMap may have (policy/priorities.MOST_RULES)
def pattern(text: str) -> Pattern:
    """A pattern in Go's syntax; raises BadInput with what Go would say no to, or what is not available here."""
    return Pattern(text)


def _word(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())


def _holds(assertion: str, before: str, after: str) -> bool:
    if assertion == "start":
        return not before
    if assertion == "end":
        return not after
    if assertion == "line start":
        return before in ("", "\n")
    if assertion == "line end":
        return after in ("", "\n")
    boundary = _word(before) != _word(after)
    return boundary if assertion == "boundary" else not boundary
