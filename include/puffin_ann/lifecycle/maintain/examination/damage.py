"""Published index files whose bytes are not those that were written, and what repairs each.

A shard that cannot be read is made again of rows of the table, and cells of those of the shards. Of
a version whose other small blobs cannot be read nothing else is of use: another file may hold it,
or an older one, or it is built again.
"""

import io
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from puffin_ann.blobs.describe import OURS, sections_of
from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import DamagedIndexError, FormatError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.metadata.dropped import find_dropped
from puffin_ann.lake.store.listing import canonical, is_folder
from puffin_ann.lifecycle.maintain.examination.contradictions import contradictions
from puffin_ann.lifecycle.maintain.guard_plan import plan_guard
from puffin_ann.lifecycle.maintain.lost_tombstones import lacks_tombstones
from puffin_ann.lifecycle.maintain.plan_repair import plan_repair
from puffin_ann.lifecycle.retention.rules import names_of_snapshots
from puffin_ann.lifecycle.versions.inventory import (
    IndexFile,
    Inventory,
    live_files,
    take_inventory,
)
from puffin_ann.lifecycle.versions.unreadable import Unreadable
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.index_version import SMALL_BLOBS, IndexVersion
from puffin_ann.search.version.versions import how_to_build_again, index_in_name

log = logging.getLogger("puffin_ann")

SMALL = frozenset({routing_blob.TYPE, *SMALL_BLOBS})
"""Types of the blobs that a search reads before it probes a shard."""


@dataclass(frozen=True)
class Damage:
    """What is wrong with the bytes of a published file.

    Attributes:
        file: the file.
        index: whose blob it is; empty where the file cannot be read at all.
        what: the problem, in one sentence.
        remedy: what repairs it.
        parts: the shards of the version that cannot be read, and the cells, with what is wrong
            with each; None where the damage is of the version as a whole.
        is_repaired_by_parts: whether these can be made again of rows.
        is_of_tombstones: whether the tombstone changes alone are, which can be made again.
        is_problem: whether something should be done: not where newer versions name what is whole of
            the file, and nobody needs the rest.
    """

    file: IndexFile
    index: str
    what: str
    remedy: str = ""
    parts: Unreadable | None = None
    is_repaired_by_parts: bool = False
    is_of_tombstones: bool = False
    is_problem: bool = True

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes concerned, as far as known."""
        return (self.index,) if self.index else ()


def find_damage(
    inventory: Inventory,
    *,
    quick: bool = False,
    declarations: Iterable[IndexDeclaration] = (),
) -> list[Damage]:
    """Look for damage in all published files; with `quick` in what is small of each.

    Not in those that are only kept since other versions name them: what these need of them is
    looked at with them. Nor in what was dropped.

    Args:
        inventory: of the table.
        quick: read no shard.
        declarations: of the table's indexes; else what was built by is gone by.
    """
    found: list[Damage] = []
    registered = {canonical(file.path) for file in inventory.files if file.entries}
    newest = {file.path for file in live_files(inventory.published).values()}
    for file in inventory.files:
        if not file.is_published or file.bytes is None:
            continue
        if file.path not in newest and not file.needs <= registered:
            continue
        if file.dropped and not file.holds:
            continue
        if file.problem:
            found.append(Damage(file, "", file.problem))
        else:
            found += damage_of(inventory.table, file, SMALL if quick else OURS.keys())
    if not found:
        return []
    remedies = _Remedies(inventory, found, tuple(declarations))
    return [remedies.on(damage) for damage in found]


def require_whole(table: Table, version: IndexVersion) -> None:
    """Read a version's files, and refuse those of which its blobs are not as they were written.

    Raises:
        DamagedIndexError: names the file, the problem and what repairs it.
    """
    inventory = take_inventory(table)
    paths = {version.path, *version.staged}
    suspects = [file for file in inventory.files if file.path in paths and file.bytes is not None]
    if not any(damage_of(table, suspect, OURS.keys()) for suspect in suspects):
        return
    for damage in find_damage(inventory):  # all files, to tell which others are whole
        if damage.file.path in paths and damage.index in ("", version.index):
            raise DamagedIndexError(f"{damage.file.path}: {damage.what}; {damage.remedy}")


def damage_of(table: Table, file: IndexFile, kinds: AbstractSet[str] = OURS.keys()) -> list[Damage]:
    """Read blobs of some types as streams, and return which are not as they were written.

    What the blobs of an index say is compared: with all types shard by shard, unpacked to a
    temporary folder.

    Raises:
        StoreUnavailableError: the store does not say, which says nothing of the file's bytes.
    """
    try:
        found = [Damage(file, *bad) for bad in _bad_blobs(table, file, kinds)]
        unpack = kinds >= OURS.keys()
        for index in sorted({held.index for held in file.holds}):
            found = _with_contradictions(table, file, index, found, unpack=unpack)
    except (FormatError, FileNotFoundError) as error:
        return [Damage(file, "", str(error))]
    return found


def _with_contradictions(
    table: Table, file: IndexFile, index: str, found: list[Damage], *, unpack: bool
) -> list[Damage]:
    """Add to the damage of an index what its blobs contradict each other in, and the parts."""
    met = contradictions(table.io, file.path, index, file.bytes, unpack=unpack)
    parts = None
    if met and all(problem.shards or problem.is_of_cells for problem in met):
        parts = Unreadable(
            {shard: problem.what for problem in met for shard in problem.shards},
            "; ".join(problem.what for problem in met if problem.is_of_cells),
        )
    if any(damage.index == index for damage in found):
        return [
            replace(damage, parts=parts) if damage.index == index else damage for damage in found
        ]
    return [*found, *(Damage(file, index, problem.what, parts=parts) for problem in met)]


def _bad_blobs(table: Table, file: IndexFile, kinds: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yield index and problem of the blobs that are not as they were written.

    Raises:
        FormatError: the file is not even a Puffin file.
        FileNotFoundError: it is gone.
    """
    with open_puffin(table.io, file.path, file.bytes) as reader:
        for blob in reader.metadata.blobs:
            if blob.type not in kinds:
                continue
            try:
                _read_whole(reader, blob)
            except FormatError as error:
                place = " ".join(f"{key} {value}" for key, value in sorted(blob.properties.items()))
                yield blob.properties.get("index", ""), f"{blob.type} of {place}: {error}"


def _read_whole(reader: PuffinReader, blob: BlobMetadata) -> None:
    stored = io.BytesIO(reader.read(blob)) if blob.compression_codec else reader.open(blob)
    sections_of(blob.type, stored).verify()


def without_damage(inventory: Inventory, found: Sequence[Damage]) -> Inventory:
    """Return the inventory as if files did not hold what is damaged in them."""
    bad = {(damage.file.path, damage.index) for damage in found}

    def whole(file: IndexFile) -> IndexFile:
        if (file.path, "") in bad:
            return replace(file, holds=())
        holds = tuple(held for held in file.holds if (file.path, held.index) not in bad)
        return replace(file, holds=holds)

    return replace(inventory, files=tuple(map(whole, inventory.files)))


def why_named(rest: Inventory, file: IndexFile, found: Sequence[Damage]) -> str:
    """Say which name of a user's needs a version of which only shards or cells are damaged.

    Empty where none does, or a version that is whole covers the same snapshot.

    Args:
        rest: the inventory as if files did not hold what is damaged in them.
        file: a damaged one, with what it holds.
        found: all damage.
    """
    if any(damage.parts is None for damage in found if damage.file.path == file.path):
        return ""
    names = names_of_snapshots(rest.table)
    whole = {(held.index, held.base_snapshot_id) for each in rest.published for held in each.holds}
    for held in file.holds:
        at = held.base_snapshot_id
        named = [name for name in names.get(at, ()) if name != f"branch {MAIN_BRANCH!r}"]
        if named and (held.index, at) not in whole:
            return f"{named[0]} points to snapshot {at}, which it covers"
    return ""


class _Remedies:
    """Says what repairs each damage.

    Args:
        inventory: of the table.
        found: all damage.
        declarations: of the table's indexes.
    """

    def __init__(
        self,
        inventory: Inventory,
        found: Sequence[Damage],
        declarations: Sequence[IndexDeclaration],
    ) -> None:
        self._inventory, self._declarations = inventory, declarations
        self._table = inventory.table
        self._fix = f"'puffin-ann doctor {name_of(self._table)} --fix'"
        self._newest = live_files(inventory.published)
        self._found, self._rest = found, without_damage(inventory, found)
        self._whole = live_files(self._rest.published)
        self._lost = plan_guard(inventory).lost
        self._needed = inventory.needed
        self._plans = {
            damage.index: plan_repair(inventory, damage.index, damage.parts, declarations)
            for damage in found
            if damage.parts and self._is_newest(damage)
        }
        repaired = {index for index, plan in self._plans.items() if plan}
        of_newest = Counter(damage.index for damage in found if self._is_newest(damage))
        whole_version = {damage.index for damage in found if damage.parts is None}
        self._without_tombstones = {
            index
            for index, count in of_newest.items()
            if count == 1 and index in whole_version and lacks_tombstones(inventory, index)
        }
        repaired |= self._without_tombstones
        self._sound = self._whole.keys() | repaired

    def on(self, damage: Damage) -> Damage:
        """Return a damage with its remedy."""
        if self._is_newest(damage) and (plan := self._plans.get(damage.index)):
            return replace(damage, remedy=f"{self._fix} {plan}", is_repaired_by_parts=True)
        if self._is_newest(damage) and damage.index in self._without_tombstones:
            remedy = (
                f"{self._fix} makes the tombstone changes again, of where the rows of its shards "
                "are, in a new version that names what is whole where it is"
            )
            return replace(damage, remedy=remedy, is_of_tombstones=True)
        if not self._is_newest(damage) and (why := why_named(self._rest, damage.file, self._found)):
            remedy = f"none: {why}; searches there read the rows of what is damaged from the table"
            return replace(damage, remedy=remedy, is_problem=False)
        if self._is_unneeded(damage):
            remedy = "none: newer versions name what is whole of it, and it goes with the last"
            return replace(damage, remedy=remedy, is_problem=False)
        return replace(damage, remedy=self._by_files(damage))

    def _is_newest(self, damage: Damage) -> bool:
        newest = self._newest.get(damage.index)
        return newest is not None and newest.path == damage.file.path

    def _is_unneeded(self, damage: Damage) -> bool:
        """Tell whether a file stays for what newer versions name of it, all of which is whole."""
        path = canonical(damage.file.path)
        # What cannot be read does not say whose it is; those who name it do.
        indexes = set(damage.indexes) or {
            held.index
            for file in self._inventory.published
            for held in file.holds
            if path in file.needs
        }
        return path in self._needed and indexes <= self._sound and not self._is_newest(damage)

    def _named(self, path: str) -> tuple[str, ...]:
        """Return the index that a file was published for, if it is in none and was not dropped."""
        name = index_in_name(path)
        if name is None or name in self._sound or name in find_dropped(self._table):
            return ()
        return (name,)

    def _by_files(self, damage: Damage) -> str:
        names = damage.indexes or self._lost or self._named(damage.file.path)
        is_beyond_us = is_folder(self._table.io, damage.file.path)  # something else in its place
        lost = [name for name in names if name not in self._sound]
        by_hand = "make it readable, or move it away by hand"
        if lost:
            again = f"{'; '.join(map(how_to_build_again, lost))}; no other file holds it whole"
            return f"{by_hand}, and {again}" if is_beyond_us else again
        if is_beyond_us:
            return f"{by_hand}: other files hold everything known to be in it"
        if not names:
            return f"{self._fix} removes it: other files hold everything known to be in it"
        if not self._whole.keys() >= set(names):
            return f"{self._fix} removes it, once it has made what other files lack"
        sources = ", ".join(sorted({self._whole[name].path for name in names}))
        return (
            f"{self._fix} publishes what {sources} holds in its place; where that covers less, "
            f"'puffin-ann build {names[0]}' does the rest"
        )
