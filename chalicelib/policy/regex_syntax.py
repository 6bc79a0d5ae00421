"""The syntax of Go's regular expressions as a tree; what it means is regex.py's.

Errors are for the person who wrote the pattern: BadInput without a place, which whoever reads the pattern knows.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from chalicelib.model.errors import BadInput

_MOST_REPEATS, _DEEPEST, _LAST = 1000, 50, 0x10FFFF
Ranges = tuple[tuple[int, int], ...]


class Chars(msgspec.Struct, frozen=True):
    """One character out of these ranges (inclusive), or of all others; fold: of either case."""

    ranges: Ranges
    negated: bool = False
    fold: bool = False

    def has(self, char: str) -> bool:
        """Whether it is one of them."""
        codes = [ord(c) for c in {char, char.lower(), char.upper()} if len(c) == 1] if self.fold else [ord(char)]
        return any(low <= code <= high for code in codes for low, high in self.ranges) != self.negated


class Assertion(msgspec.Struct, frozen=True):
    """start, end, line start, line end, boundary, no boundary."""

    kind: str


class Row(msgspec.Struct, frozen=True):
    """One after the other."""

    parts: tuple[Tree, ...]


class Either(msgspec.Struct, frozen=True):
    """One of them."""

    parts: tuple[Tree, ...]


class Repeat(msgspec.Struct, frozen=True):
    """From least to most times; most None: no limit."""

    part: Tree
    least: int
    most: int | None


Tree = Chars | Assertion | Row | Either | Repeat


class _Flags(NamedTuple):
    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False  # greed is of no interest here


_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_PERL: dict[str, Ranges] = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ASSERTIONS = {"A": "start", "z": "end", "b": "boundary", "B": "no boundary"}


def parse(text: str) -> Tree:
    """The tree of a pattern; raises BadInput."""
    parser = _Parser(text)
    tree = parser.either(_Flags(), 0)
    if parser.rest():
        raise BadInput("", "a ) without its (", "")
    return tree


def _bad(problem: str) -> BadInput:
    return BadInput("", problem, "")


def _others(ranges: Ranges) -> Ranges:
    """What is not in the ranges."""
    gaps, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            gaps.append((at, low - 1))
        at = max(at, high + 1)
    return (*gaps, (at, _LAST)) if at <= _LAST else tuple(gaps)


class _Parser:
    """Reads from left to right; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def rest(self) -> bool:
        return self.at < len(self.text)

    def peek(self, ahead: str) -> bool:
        return self.text.startswith(ahead, self.at)

    def take(self, ahead: str) -> bool:
        """Whether this comes next; if so, it is read."""
        found = self.peek(ahead)
        self.at += len(ahead) if found else 0
        return found

    def next(self, missing: str) -> str:
        """The next character; the complaint if there is none."""
        if not self.rest():
            raise _bad(missing)
        self.at += 1
        return self.text[self.at - 1]

    def until(self, end: str, missing: str) -> str:
        """What stands before `end`, which is read over."""
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise _bad(missing)
        found, self.at = self.text[self.at : stop], stop + len(end)
        return found

    def either(self, flags: _Flags, depth: int) -> Tree:
        """Alternatives up to a ) or the end; flags set inside hold for the rest of it."""
        if depth > _DEEPEST:
            raise _bad(f"nested deeper than {_DEEPEST}")
        rows: list[list[Tree]] = [[]]
        while self.rest() and not self.peek(")"):
            if self.take("|"):
                rows.append([])
            elif self.take(r"\Q"):
                stop = self.text.find(r"\E", self.at)
                quoted = self.text[self.at : stop if stop >= 0 else len(self.text)]
                self.at += len(quoted) + (2 if stop >= 0 else 0)
                parts: list[Tree] = [Chars(((ord(c), ord(c)),), fold=flags.i) for c in quoted]
                if parts:
                    rows[-1] += [*parts[:-1], self.repeated(parts[-1])]
            elif (changed := self.flags_alone(flags)) is not None:
                flags = changed
            else:
                rows[-1].append(self.repeated(self.atom(flags, depth)))
        made: list[Tree] = [row[0] if len(row) == 1 else Row(tuple(row)) for row in rows]
        return made[0] if len(made) == 1 else Either(tuple(made))

    def flags_alone(self, flags: _Flags) -> _Flags | None:
        """`(?i)`; None if something else comes next."""
        end = self.text.find(")", self.at)
        inside = self.text[self.at + 2 : end] if self.peek("(?") and end >= 0 else ""
        if not inside or not set(inside) <= set("imsU-"):
            return None
        self.at = end + 1
        return _flags(flags, inside)

    def atom(self, flags: _Flags, depth: int) -> Tree:
        """One thing that can be repeated."""
        char = self.next("")
        if char in "*+?":
            raise _bad(f"nothing to repeat before {char}")
        if char == "(":
            return self.group(flags, depth)
        if char == "[":
            return self.bracket(flags)
        if char == "\\":
            return self.escape(flags)
        signs: dict[str, Tree] = {
            ".": Chars(((0, _LAST),) if flags.s else _others(((10, 10),))),
            "^": Assertion("line start" if flags.m else "start"),
            "$": Assertion("line end" if flags.m else "end"),
        }
        return signs.get(char) or Chars(((ord(char), ord(char)),), fold=flags.i)

    def group(self, flags: _Flags, depth: int) -> Tree:
        """What stands between ( and )."""
        if self.take("?"):
            if self.peek("<=") or self.peek("<!") or not (self.take("P<") or self.take("<")):
                inside = self.text[self.at :].partition(":")[0]
                if not set(inside) <= set("imsU-"):
                    raise _bad(f"(?{inside[:2]} is not in Go's syntax")
                flags = _flags(flags, inside)
                self.at += len(inside)
                if not self.take(":"):
                    raise _bad("a ( without its )")
            else:
                name = self.until(">", "a group's name does not end")
                if not name or not name.replace("_", "a").isalnum() or not name.isascii():
                    raise _bad("a group's name is not made of letters and digits")
        tree = self.either(flags, depth + 1)
        if not self.take(")"):
            raise _bad("a ( without its )")
        return tree

    def repeated(self, tree: Tree) -> Tree:
        """The thing just read with what follows it: * + ? {n,m}, each with a ? or not."""
        bounds = self.bounds()
        if bounds is None:
            return tree
        self.take("?")
        again = self.at
        if self.bounds() is not None:
            raise _bad(f"{self.text[again - 1 : self.at]} repeats a repetition")
        return Repeat(tree, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        """A repetition's least and most; None if none comes next (a { that is none is a character)."""
        for sign, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return found
        end = self.text.find("}", self.at)
        if not self.peek("{") or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not _digits(low) or (high and not _digits(high)):
            return None
        least = int(low[:9])
        most = least if not comma else int(high[:9]) if high else None
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise _bad(f"{self.text[self.at : end + 1][:30]} is not a repetition; from 0 to {_MOST_REPEATS} times")
        self.at = end + 1
        return least, most

    def escape(self, flags: _Flags) -> Tree:
        """What follows a backslash, outside brackets."""
        if self.rest() and self.text[self.at] in _ASSERTIONS:
            return Assertion(_ASSERTIONS[self.next("")])
        ranges = self.escaped_class()
        if ranges is not None:
            return Chars(ranges)
        code = self.escaped_char()
        return Chars(((code, code),), fold=flags.i)

    def escaped_class(self) -> Ranges | None:
        r"""The characters of \d and its like; None if none comes next."""
        sign = self.text[self.at : self.at + 1]
        if sign in {"p", "P", "C"}:
            raise _bad(f"\\{sign} is not available")
        ranges = _PERL.get(sign.lower()) if sign else None
        if ranges is None:
            return None
        self.at += 1
        return _others(ranges) if sign.isupper() else ranges

    def escaped_char(self) -> int:
        """The code of one character written with a backslash, which is read already."""
        char = self.next("the pattern ends in a backslash")
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            braces = self.take("{")
            digits = self.until("}", r"\x{ without its }") if braces else self.next_two()
            if not digits or not set(digits) <= set("0123456789abcdefABCDEF") or int(digits, 16) > _LAST:
                raise _bad(r"\x without the code of a character")
            return int(digits, 16)
        if char == "0" or (char in "1234567" and self.text[self.at : self.at + 1] in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self.text[self.at : self.at + 1] in tuple("01234567"):
                digits += self.next("")
            return int(digits, 8)
        if char in "123456789":
            raise _bad(f"\\{char} is a back-reference, which Go does not have")
        if char.isascii() and not char.isalnum():
            return ord(char)
        raise _bad(f"\\{char} is not in Go's syntax")

    def next_two(self) -> str:
        """Two characters."""
        return self.next(r"\x without its two digits") + self.next(r"\x without its two digits")

    def bracket(self, flags: _Flags) -> Tree:
        """[…], after its [."""
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self.peek("]"):
            first = False
            found = self.posix() if self.peek("[:") else None
            if found is None and self.peek("\\"):
                self.at += 1
                found = self.escaped_class()
                self.at -= 1 if found is None else 0
            if found is not None:
                ranges += found
                continue
            low = high = self.member()
            if self.peek("-") and self.text[self.at + 1 : self.at + 2] not in {"", "]"}:
                self.at += 1
                high = self.member()
                if high < low:
                    raise _bad("a range in [ ] that runs backwards")
            ranges.append((low, high))
        self.at += 1
        return Chars(tuple(ranges), negated, flags.i)

    def member(self) -> int:
        """One character in brackets."""
        char = self.next("a [ without its ]")
        return self.escaped_char() if char == "\\" else ord(char)

    def posix(self) -> Ranges | None:
        """`[:alpha:]`, or None if it is only a [ and a :."""
        end = self.text.find(":]", self.at + 2)
        if end < 0:
            return None
        name = self.text[self.at + 2 : end]
        negated, name = name.startswith("^"), name.removeprefix("^")
        if name not in _POSIX:
            raise _bad(f"[:{name[:10]}:] is not in Go's syntax")
        self.at = end + 2
        return _others(_POSIX[name]) if negated else _POSIX[name]


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _flags(flags: _Flags, text: str) -> _Flags:
    """`i`, `-s`, `i-s` and nothing before a colon."""
    on, minus, off = text.partition("-")
    if (minus and not off) or "-" in off:
        raise _bad(f"(?{text[:10]} is not in Go's syntax")
    return flags._replace(**dict.fromkeys(on, True), **dict.fromkeys(off, False))
