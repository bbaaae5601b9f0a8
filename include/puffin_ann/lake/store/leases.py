"""Leases: one holder at a time of something that several processes could work on.

A lease is a claim: an object with a number, created only if absent. The process that creates the
next number has the lease. A heartbeat beside it, written by the holder alone, says until when it is
meant to last; a marker says that it was given back. Once the newest claim was given back or has
expired, any process may claim the next number. Numbers grow: by them an earlier holder that wakes
up too late is recognised (fencing).

A lease only saves work. A holder that was presumed dead may still be working, and stores without a
conditional put may let two holders through: correctness must not depend on it.

The objects' names begin with `_`, which hides them from Iceberg's removal of orphan files.
"""

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.io import FileIO

from puffin_ann.errors import EnvironmentProblemError, LeaseHeldError, StagingError
from puffin_ann.lake.store.listing import StoredObject, delete_object, list_objects
from puffin_ann.lake.store.staging import Staging
from puffin_ann.moments import Moment, as_utc, now_ms
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")

CLAIM = re.compile(r"_lease-([0-9]{8,9})(\.beat|\.released)?")
LAST = 999_999_999
"""The highest number that a claim can have; behind it they begin again with 1."""

MOST_BYTES = 16 << 10
"""Largest object that is read for one of a lease; ours have a few hundred bytes."""

MOST_SECONDS = 86_400.0
"""No run asks for a lease that lasts longer than this without a heartbeat, or than twice what
the settings say. The writer may have had other settings, so the bound is wide."""

MOST_AHEAD_MS = 86_400_000
"""No clock of a store is this far ahead of ours."""

ATTEMPTS = 8
WAIT_SECONDS = 0.02
"""Before the second attempt twice as long, and twice that before each one after it."""
SKEW_MS = 5_000
"""A lease is taken over only so long after its end: clocks of two machines differ."""

STALE_LOOK_SECONDS = 20.0
"""A claim made later than this after looking may go by what has changed since: look again."""


Name = Annotated[str, Field(max_length=2_000)]


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

    owner: Name
    purpose: Name
    since_ms: Moment
    until_ms: Moment
    token: Name


_UNKNOWN = Claim(owner="unknown", purpose="unknown", since_ms=0, until_ms=0, token="")


class Beat(_Object):
    """A heartbeat: until when the holder means to go on, milliseconds since 1970."""

    until_ms: Moment


_Read = TypeVar("_Read", Claim, Beat)


@dataclass(frozen=True)
class Held:
    """The newest claim, as it was found.

    Attributes:
        number: of the claim; later ones are higher.
        claim: who made it.
        until_ms: when it ends, heartbeats considered.
        released: it was given back.
        oddity: what no run of ours writes into it; such a claim holds nothing.
    """

    number: int
    claim: Claim
    until_ms: int
    released: bool
    oddity: str = ""

    def is_alive(self, at_ms: int) -> bool:
        """Tell whether it holds at a moment."""
        return not (self.released or self.oddity) and at_ms < self.until_ms + SKEW_MS

    @property
    def described(self) -> str:
        """Who holds it, doing what, and since when."""
        return f"{self.claim.purpose} (run {self.claim.owner}) since {as_utc(self.claim.since_ms)}"


class Lease:
    """The lease on what a folder of the table's store represents.

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

    def location_of(self, held: Held) -> str:
        """Return where a claim lies."""
        return self._place.uri(_name(held.number))

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
            LeaseHeldError: another run has it; says which and since when.
            StagingError: something else is in the place of its objects, or it changes too fast.
        """
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(WAIT_SECONDS * 2**attempt)
            looked = time.monotonic()
            held = self.look()
            if held is not None and held.claim.owner == owner and not held.released:
                self._beat(held.number, seconds)
                return replace(held, until_ms=self._until(seconds))
            if held is not None and held.is_alive(self._clock()):
                raise LeaseHeldError(f"{self.what} is being worked on by {held.described}")
            mine = self._claim(self._next(held), owner, purpose, seconds, looked)
            if mine is not None:
                if held is not None and not held.released:
                    log.warning(
                        "lease: %s of %s; it lost %s",
                        held.oddity or "no heartbeat",
                        held.described,
                        self.what,
                    )
                self._clear(below=mine.number)
                return mine
        raise StagingError(
            f"the lease on {self.what} could not be taken in {ATTEMPTS} attempts: others are at "
            f"it all the time, or something else has a name of its own in {self._place.root}"
        )

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
        self._place.put_new(f"{_name(held.number)}.released", b"{}")
        return True

    def break_lease(self) -> Held | None:
        """End the lease of its holder, which goes on without it; None if nobody has it.

        What two runs do to one index at a time comes to no harm, as nothing that has to be right
        rests on a lease: the later publication fails.
        """
        held = self.look()
        if held is None or not held.is_alive(self._clock()):
            return None
        self._place.put_new(f"{_name(held.number)}.released", b"{}")
        return held

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

    def _next(self, held: Held | None) -> int:
        """Return the number of the claim that follows one which holds no more."""
        if held is None:
            return 1
        if held.number < LAST:
            return held.number + 1
        self._clear(below=LAST + 1)
        return 1

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
        if not self._place.put_new(_name(number), claim.model_dump_json().encode()):
            return None
        late = time.monotonic() - looked > STALE_LOOK_SECONDS
        found = self._objects()
        # A holder removes the claims below its own, so that a number seen as next a while ago may
        # be free again: what counts is to be the newest.
        if not late and found and max(found) == number and self._is_mine(number, claim):
            return Held(number, claim, claim.until_ms, released=False)
        if self._is_mine(number, claim):
            delete_object(self._place.io, self._place.uri(_name(number)))
        return None

    def _is_mine(self, number: int, claim: Claim) -> bool:
        try:
            return self._read_as(Claim, _name(number)) == claim
        except StagingError:
            return False

    def _objects(self) -> dict[int, dict[str, StoredObject]]:
        return lease_objects(list_objects(self._place.io, self._place.root))

    def _read(self, number: int, objects: Mapping[str, StoredObject]) -> Held:
        """Make out what a claim and its heartbeat say; who wrote them is not known."""
        name = _name(number)
        stored, beat = objects[name], objects.get(f"{name}.beat")
        claim = self._read_as(Claim, name) if stored.bytes <= MOST_BYTES else None
        released = f"{name}.released" in objects
        if claim is None:
            return Held(number, _UNKNOWN, 0, released, oddity="it is not what runs write")
        until, written_ms = claim.until_ms, stored.modified_ms
        if beat is not None and beat.bytes <= MOST_BYTES:
            said = self._read_beat(beat)
            if said is not None:
                until, written_ms = said.until_ms, beat.modified_ms
        oddity = ""
        # Where files can be given any time of writing, that time says no more than the claim does.
        believed_ms = min(written_ms, self._clock() + MOST_AHEAD_MS)
        if until > believed_ms + _most_ms():
            oddity = f"it was written at {as_utc(written_ms)} to last until {as_utc(until)}"
        return Held(number, claim, until, released, oddity)

    def _read_beat(self, beat: StoredObject) -> Beat | None:
        try:
            return self._read_as(Beat, beat.uri.rpartition("/")[2])
        except StagingError:
            return None

    def _read_as(self, kind: type[_Read], name: str) -> _Read | None:
        """Read an object; None if it is somebody's bytes, or half of ours."""
        try:
            return kind.model_validate_json(self._place.read(name))
        except ValidationError:
            return None

    def _until(self, seconds: float) -> int:
        return self._clock() + int(seconds * 1000)

    def _beat(self, number: int, seconds: float) -> None:
        beat = Beat(until_ms=self._until(seconds))
        self._place.put(f"{_name(number)}.beat", beat.model_dump_json().encode())

    def _clear(self, *, below: int) -> None:
        """Remove what earlier holders left; the newest claim stays, so that numbers grow."""
        try:
            for stored in list_objects(self._place.io, self._place.root):
                match = CLAIM.fullmatch(stored.uri.rpartition("/")[2])
                if match and int(match[1]) < below:
                    delete_object(self._place.io, stored.uri)
        except EnvironmentProblemError as error:
            log.warning("lease: earlier claims on %s are left behind: %s", self.what, error)


def lease_objects(objects: Iterable[StoredObject]) -> dict[int, dict[str, StoredObject]]:
    """Return the lease objects of a folder by number and name; numbers without a claim are none."""
    found: dict[int, dict[str, StoredObject]] = {}
    for stored in objects:
        name = stored.uri.rpartition("/")[2]
        match = CLAIM.fullmatch(name)
        if match:
            found.setdefault(int(match[1]), {})[name] = stored
    return {number: named for number, named in found.items() if _name(number) in named}


def _most_ms() -> int:
    chosen = settings()
    longest = max(MOST_SECONDS, 2 * chosen.lease_idle_seconds, 2 * chosen.lease_seconds)
    return int(longest * 1000)


def _name(number: int) -> str:
    return f"_lease-{number:08d}"
