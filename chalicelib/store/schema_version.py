"""The schema version of the rows, so that an older release never misreads what
a newer one has written.

One row of the state table states it for both tables; without the row, it is 1. A release that
cannot read the schema refuses all work with one clear error; a release with a newer schema writes
its version before its first pass. The row is read once per process and once a minute after that, so
that processes which are still warm after an upgrade stop.

New optional attributes do not need a new schema, because releases ignore attributes that they do
not know. A change that an older release would misread raises it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from pynamodb.exceptions import AttributeDeserializationError

from chalicelib.store.errors import NewerSchema, StoreError, StoreUnavailable
from chalicelib.store.table_client import ConditionFailed, Table
from chalicelib.store.tables import SCHEMA_ITEM, SCHEMA_PARTITION, SchemaRow

SCHEMA = 1
"""The schema version that this code reads and writes."""

CHECKED_FOR = 60.0
"""Seconds for which an answer is used."""

_NO_VERSION = re.compile(r"[^A-Za-z0-9.+_-]")
_LONGEST_RELEASE = 40  # characters of another release's name shown in an error


class Written(msgspec.Struct, frozen=True):
    """The row's content. release: of the code that raised the schema to this one,
    "" where there is no row."""

    schema: int = 1
    release: str = ""


class Schemas:
    """The schema check of one process. release: of this code. schema: the
    one that this code knows."""

    def __init__(
        self, table: Table, clock: Callable[[], float], release: str, schema: int = SCHEMA
    ) -> None:
        self._table, self._clock, self._release, self._known = table, clock, release, schema
        self._written: Written | None = None
        self._checked = 0.0

    def check(self) -> None:
        """Raise NewerSchema where this code must not use the table, StoreError where
        that cannot be determined.

        While the table does not respond, the last result is used.
        """
        written = self._current()
        if written.schema > self._known:
            raise NewerSchema(written.schema, written.release, self._known)

    def raise_to_own(self) -> None:
        """Do the same as `check`. Where the table has no row, or an older schema, write this
        code's schema: from here on rows may have its format. Never lowers it."""
        self.check()
        written = self._current()
        if written.release and written.schema == self._known:
            return
        row = SchemaRow(
            SCHEMA_PARTITION,
            SCHEMA_ITEM,
            schema=self._known,
            release=self._release,
            since=self._clock(),
        )
        nothing_is_written = SchemaRow.schema.does_not_exist()
        it_is_older = SchemaRow.schema < self._known
        try:
            self._table.write(self._table.put(row, nothing_is_written | it_is_older))
        except ConditionFailed:
            # Another function was faster, and may have a newer schema.
            self._written, self._checked = self._read(consistent=True), self._clock()
            self.check()
            return
        self._written, self._checked = Written(self._known, self._release), self._clock()

    def _current(self) -> Written:
        now = self._clock()
        if self._written is not None and self._checked <= now < self._checked + CHECKED_FOR:
            return self._written
        try:
            self._written = self._read(consistent=False)  # half the price, at most a second old
        except StoreUnavailable:
            if self._written is None:
                raise
            return self._written
        self._checked = now
        return self._written

    def _read(self, *, consistent: bool) -> Written:
        try:
            row = self._table.get(SchemaRow, SCHEMA_PARTITION, SCHEMA_ITEM, consistent=consistent)
            if row is None:
                return Written()
            # One short word of version characters from any stored value.
            release = _NO_VERSION.sub("?", (row.release or "")[:_LONGEST_RELEASE]) or "unknown"
            return Written(int(row.schema), release)
        except (AttributeDeserializationError, AttributeError, TypeError, ValueError) as error:
            raise StoreError(
                "the row that says which release wrote the table cannot be read; deploy the "
                "release that "
                f"wrote it ({type(error).__name__})"
            ) from None
