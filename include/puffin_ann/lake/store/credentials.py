"""Credentials that a catalog lends with a table: renewed before they run out, or once refused.

A REST catalog may vend credentials with each table that it gives, for an hour or less. What holds a
table for longer, such as a driver that waits for its executors, a task that builds a large shard,
or the thread that keeps a lease, would be refused by the store with its work done. So the catalog
is asked for the table again, and the FileIO goes on with the credentials that come with it: shortly
before the moment at which the catalog said that they end, or when a store has refused access, which
is all that some stores say of credentials that have ended.

This is for PyIceberg's Arrow FileIO. A FileIO that was sent to another process keeps what it has.
"""

import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import PuffinAnnError
from puffin_ann.moments import now_ms

EARLY_MS = 5 * 60_000
"""So long before their end credentials are renewed; or in the second half of a shorter life."""

SETTLED_MS = 30_000
"""Credentials that were lent a moment ago are not why a store refuses access; and a catalog that
could not be asked is left alone for so long."""

_TEMPORARY = re.compile(r"s3\.session-token|gcs\.oauth2\.token|adls\.sas-token.*")
_END = re.compile(r".*expires-at(-ms)?(\..*)?")

log = logging.getLogger("puffin_ann")


class Loan:
    """The credentials of one FileIO.

    Args:
        properties: of the FileIO.
        ask: asks the catalog for the table again, and returns the properties of its FileIO.

    Attributes:
        number: of the credentials, counted from 0; who connected by earlier ones has to do it anew.
    """

    def __init__(self, properties: Mapping[str, str], ask: Callable[[], Mapping[str, str]]) -> None:
        self.number = 0
        self._ask = ask
        self._asking = Lock()
        self._took(properties)

    def _took(self, properties: Mapping[str, str]) -> None:
        self._since_ms = now_ms()
        ends = [
            int(value)
            for name, value in properties.items()
            if _END.fullmatch(name) and value.isdecimal()
        ]
        life_ms = min(ends, default=0) - self._since_ms
        # What has no end, or one that is over by this machine's clock, is used until it is refused.
        self._due_ms = None if life_ms <= 0 else min(ends) - min(EARLY_MS, life_ms // 2)

    def refuse(self) -> bool:
        """Have the credentials renewed when they are used next, unless they are new."""
        if now_ms() - self._since_ms < SETTLED_MS:
            return False
        self._due_ms = 0
        return True

    def renew(self, io: PyArrowFileIO) -> None:
        """Renew the credentials of a FileIO if that is due."""
        with self._asking:
            if self._due_ms is None or now_ms() < self._due_ms:
                return
            try:
                properties = dict(self._ask())
            except PuffinAnnError as error:
                log.warning("credentials were not renewed, and are used as they are: %s", error)
                self._due_ms = now_ms() + SETTLED_MS
                return
            if properties != io.properties:
                io.properties = properties
                self.number += 1
            self._took(properties)
        log.info("the catalog was asked for credentials again")


_loans: "WeakKeyDictionary[FileIO, Loan]" = WeakKeyDictionary()
_guard = Lock()


def lend(io: FileIO, configured: Mapping[str, str], ask: Callable[[], Mapping[str, str]]) -> None:
    """Have the credentials of a table's FileIO renewed, if its catalog lent them with the table.

    Args:
        io: of the table.
        configured: properties of the catalog; what is in them does not end.
        ask: asks the catalog for the table again, and returns the properties of its FileIO. It must
            not keep `io`.
    """
    lent = {name for name, value in io.properties.items() if configured.get(name) != value}
    if not isinstance(io, PyArrowFileIO) or not any(map(_TEMPORARY.fullmatch, lent)):
        return
    loan = Loan(io.properties, ask)
    with _guard:
        _loans[io] = loan

    @lru_cache
    def connect(number: int, scheme: str, netloc: str | None) -> Any:
        return io._initialize_fs(scheme, netloc)

    def connected(scheme: str, netloc: str | None) -> Any:
        loan.renew(io)
        return connect(loan.number, scheme, netloc)

    io.fs_by_scheme = connected  # PyIceberg connects by it, whatever it reads or writes


def is_lent(io: FileIO) -> bool:
    """Tell whether the credentials of a FileIO are renewed."""
    return io in _loans


def valid_properties(io: PyArrowFileIO) -> Mapping[str, str]:
    """Return the properties of a FileIO that is lent its credentials, renewed if that is due."""
    _loans[io].renew(io)
    return io.properties


def refuse_all() -> bool:
    """Have all lent credentials renewed that are not new; tell whether there are any.

    A store that refuses access does not say by which of them it was asked.
    """
    with _guard:
        loans = list(_loans.values())
    return sum(loan.refuse() for loan in loans) > 0
