"""Leases: one holder at a time of something that several processes could work on.

A lease is a claim, an object with a number that is created if absent; whoever creates the next
number has it. A heartbeat beside it, written by the holder alone, says until when it is meant to
last; a marker says that it was given back. Who finds the newest claim given back or expired may
claim the next number. Numbers grow: they tell an earlier holder that woke up too late (fencing).

All that a lease saves is work. A holder that was taken for dead may still be at it, and stores
without a conditional put may let two through: nothing that has to be right may rest on it.

The objects' names begin with `_`, which hides them from Iceberg's removal of orphan files.
"""

import logging
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, ValidationError
from pyiceberg.io import FileIO

from puffin_ann.errors import LeaseHeldError, StagingError
from puffin_ann.lake.listing import StoredObject, delete_object, listed
from puffin_ann.lake.staging import Staging

log = logging.getLogger("puffin_ann")

CLAIM = re.compile(r"_lease-(\d{8})(\.beat|\.released)?")
SKEW_MS = 5_000
"""A lease is taken over only so long after its end: clocks of two machines differ."""

STALE_LOOK_SECONDS = 20.0
"""A claim made later than this after looking may rest on what is no longer so: look again."""


class _Object(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Claim(_Object):
    """Who holds a lease.

    Attributes:
        owner: the run; the same owner may take it again, from any process.
        purpose: what it does, for people.
        since_ms: when it was claimed, milliseconds since 1970.
        until_ms: when it ends unless a heartbeat says otherwise.
        token: tells two claims of one number apart, on stores that let both through.
    """

    owner: str
    purpose: str
    since_ms: int
    until_ms: int
    token: str


class Beat(_Object):
    """A heartbeat: until when the holder means to go on, milliseconds since 1970."""

    until_ms: int


@dataclass(frozen=True)
class Held:
    """The newest claim, as it was found.

    Attributes:
        number: of the claim; later ones are higher.
        claim: who made it.
        until_ms: when it ends, heartbeats considered.
        released: it was given back.
    """

    number: int
    claim: Claim
    until_ms: int
    released: bool

    def is_alive(self, at_ms: int) -> bool:
        """Tell whether it holds at a moment."""
        return not self.released and at_ms < self.until_ms + SKEW_MS

    @property
    def described(self) -> str:
        """Who holds it, doing what, and since when."""
        since = datetime.fromtimestamp(self.claim.since_ms / 1000, UTC)
        return f"{self.claim.purpose} (run {self.claim.owner}) since {since:%Y-%m-%d %H:%M:%S} UTC"


def now_ms() -> int:
    """Return the time, milliseconds since 1970."""
    return int(time.time() * 1000)


class Lease:
    """The lease on what a folder of the table's store stands for.

    Args:
        io: of the table.
        folder: where the lease's objects lie, among others.
        what: what it is a lease on, for messages.
        clock: returns milliseconds since 1970.
    """

    def __init__(
        self, io: FileIO, folder: str, what: str, *, clock: Callable[[], int] = now_ms
    ) -> None:
        self.what = what
        self._place = Staging(io, folder)
        self._clock = clock

    def look(self) -> Held | None:
        """Return the newest claim, held or not; None if there never was one."""
        for _ in range(3):
            found = self._objects()
            if not found:
                return None
            number = max(found)
            try:
                return self._read(number, found[number])
            except StagingError:
                continue  # the next holder cleared it away meanwhile
        raise StagingError(f"the lease on {self.what} changes too fast to be read")

    def acquire(self, owner: str, purpose: str, seconds: float) -> Held:
        """Take the lease, or go on with it where the owner has it already.

        Args:
            owner: the run that wants it.
            purpose: what it does, for people.
            seconds: how long it lasts without a heartbeat.

        Raises:
            LeaseHeldError: somebody else has it; says who and since when.
        """
        while True:
            looked = time.monotonic()
            held = self.look()
            if held is not None and held.claim.owner == owner and not held.released:
                self._beat(held.number, seconds)
                return replace(held, until_ms=self._until(seconds))
            if held is not None and held.is_alive(self._clock()):
                raise LeaseHeldError(f"{self.what} is being worked on by {held.described}")
            mine = self._claim(held.number + 1 if held else 1, owner, purpose, seconds, looked)
            if mine is not None:
                if held is not None and not held.released:
                    log.warning(
                        "lease: no sign of life of %s; it lost %s", held.described, self.what
                    )
                self._clear(below=mine.number)
                return mine

    def renew(self, owner: str, seconds: float) -> bool:
        """Make the owner's lease last; False if the owner has it no more."""
        held = self.look()
        if held is None or held.released or held.claim.owner != owner:
            return False
        self._beat(held.number, seconds)
        return True

    def release(self, owner: str) -> bool:
        """Give the lease back; False if the owner did not have it."""
        held = self.look()
        if held is None or held.released or held.claim.owner != owner:
            return False
        # Torn by a machine that goes down, a claim counts as one that has ended: no need to wait.
        self._place.put_new(f"{_name(held.number)}.released", b"{}", lasting=False)
        return True

    def remove(self) -> bool:
        """Remove what holders left, where the lease is on nothing any more; False if one is alive.

        Claims are numbered from 1 again then: one that rests on what was seen before may be made
        beside it for a moment, of which nothing can come.
        """
        held = self.look()
        if held is not None and held.is_alive(self._clock()):
            return False
        if held is not None:
            self._clear(below=held.number + 1)
        return True

    def _claim(
        self, number: int, owner: str, purpose: str, seconds: float, looked: float
    ) -> Held | None:
        """Try to be the one who creates a number; None if another was faster, or may have been."""
        now = self._clock()
        claim = Claim(
            owner=owner,
            purpose=purpose,
            since_ms=now,
            until_ms=now + int(seconds * 1000),
            token=uuid.uuid4().hex,
        )
        if not self._place.put_new(_name(number), claim.model_dump_json().encode(), lasting=False):
            return None
        late = time.monotonic() - looked > STALE_LOOK_SECONDS
        found = self._objects()
        # A holder removes the claims below its own, so that a number seen as next a while ago may
        # be free again: what counts is to be the newest.
        if not late and found and max(found) == number and self._read_claim(number) == claim:
            return Held(number, claim, claim.until_ms, released=False)
        if self._is_mine(number, claim):
            delete_object(self._place.io, self._place.uri(_name(number)))
        return None

    def _is_mine(self, number: int, claim: Claim) -> bool:
        try:
            return self._read_claim(number) == claim
        except StagingError:
            return False

    def _objects(self) -> dict[int, list[str]]:
        return lease_objects(listed(self._place.io, self._place.root))

    def _read(self, number: int, names: list[str]) -> Held:
        claim = self._read_claim(number)
        until = claim.until_ms
        if f"{_name(number)}.beat" in names:
            until = self._read_beat(number, claim)
        return Held(number, claim, until, released=f"{_name(number)}.released" in names)

    def _read_claim(self, number: int) -> Claim:
        try:
            return Claim.model_validate_json(self._place.read(_name(number)))
        except ValidationError:
            # Somebody's bytes, or half of them: it counts as a claim that has ended.
            return Claim(owner="unknown", purpose="unknown", since_ms=0, until_ms=0, token="")

    def _read_beat(self, number: int, claim: Claim) -> int:
        try:
            data = self._place.read(f"{_name(number)}.beat")
            return Beat.model_validate_json(data).until_ms
        except (ValidationError, StagingError):
            return claim.until_ms

    def _until(self, seconds: float) -> int:
        return self._clock() + int(seconds * 1000)

    def _beat(self, number: int, seconds: float) -> None:
        beat = Beat(until_ms=self._until(seconds))
        self._place.put(f"{_name(number)}.beat", beat.model_dump_json().encode())

    def _clear(self, *, below: int) -> None:
        """Remove what earlier holders left; the newest claim stays, so that numbers grow."""
        try:
            for one in listed(self._place.io, self._place.root):
                match = CLAIM.fullmatch(one.uri.rpartition("/")[2])
                if match and int(match[1]) < below:
                    delete_object(self._place.io, one.uri)
        except StagingError as error:
            log.warning("lease: earlier claims on %s are left behind: %s", self.what, error)


def lease_objects(objects: list[StoredObject]) -> dict[int, list[str]]:
    """Return the names of lease objects by number; a number counts if its claim is there."""
    names = [one.uri.rpartition("/")[2] for one in objects]
    found: dict[int, list[str]] = {}
    for name in names:
        match = CLAIM.fullmatch(name)
        if match:
            found.setdefault(int(match[1]), []).append(name)
    return {number: names for number, names in found.items() if _name(number) in names}


def _name(number: int) -> str:
    return f"_lease-{number:08d}"
