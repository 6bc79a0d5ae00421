"""A table of cases in one test: `pytest.mark.parametrize` makes a test of each row, which
costs more than the row does.

For functions that take nothing but the row. A row that needs fixtures of its own, or
seconds, is a test of its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def each_row(
    names: str | Sequence[str], rows: Iterable[Any], ids: Any = None
) -> Callable[[Test], Test]:
    """As pytest.mark.parametrize, in one test: all rows are tried, and the failed ones are
    reported with their values.

    ids: names of the rows, or a function of a value. Raises the error of the row that
    failed, or an ExceptionGroup.
    """
    wanted = (
        [name.strip() for name in names.split(",") if name.strip()]
        if isinstance(names, str)
        else list(names)
    )
    several = len(wanted) > 1 or not isinstance(names, str)
    table = [_values(row, several=several) for row in rows]
    assert table, "a table without a row proves nothing"
    assert all(len(values) == len(wanted) for values in table), wanted

    def decorated(test: Test) -> Test:
        @functools.wraps(test)
        def tried(**fixtures: Any) -> None:
            failed = list[Exception]()
            for at, values in enumerate(table):
                try:
                    test(**dict(zip(wanted, values, strict=True)), **fixtures)
                except Exception as error:
                    error.add_note(f"row {_named(values, at, ids)}")
                    failed.append(error)
            if len(failed) > 1:
                raise ExceptionGroup(f"{len(failed)} of {len(table)} rows failed", failed)
            if failed:
                raise failed[0]

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in wanted]
        tried.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return tried

    return decorated


def _values(row: Any, *, several: bool) -> tuple[Any, ...]:
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row with a mark is a test of its own"
        return tuple(row.values)
    return tuple(row) if several else (row,)


def _named(values: Sequence[Any], at: int, ids: Any) -> str:
    if callable(ids):
        return ", ".join(str(ids(value)) for value in values)
    return str(ids[at]) if ids else ", ".join(map(_short, values))


def _short(value: Any) -> str:
    try:
        return repr(value)[:120]
    except ValueError:  # an integer of more digits than Python writes
        return type(value).__name__
