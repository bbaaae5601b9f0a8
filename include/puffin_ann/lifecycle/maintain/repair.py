"""Published index files whose bytes are not those that were written, and what takes their place.

A damaged blob cannot be repaired from itself. Another file may have what it held: the same version,
carried over, or an older one, which covers less. That is published again, with everything else of
the damaged file that is whole. Then the damaged file is removed, since guard and searches would try
it again and again.
"""

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from puffin_ann.blobs import routing as routing_blob
from puffin_ann.blobs.describe import OURS, sections_of
from puffin_ann.errors import DamagedIndexError, FormatError
from puffin_ann.lake.catalog.tables import name_of, reload_table
from puffin_ann.lake.commit.statistics_slots import SlotChange, change_slots, slots
from puffin_ann.lake.store.listing import canonical, delete_object, is_folder
from puffin_ann.lifecycle.maintain.contradictions import contradiction
from puffin_ann.lifecycle.maintain.guard import live_files, plan_guard
from puffin_ann.lifecycle.publish.carried_blobs import is_foreign
from puffin_ann.lifecycle.publish.republish import republish
from puffin_ann.lifecycle.retention.withheld import Protection
from puffin_ann.lifecycle.runtime.retry import retry_on_conflict
from puffin_ann.lifecycle.versions.inventory import IndexFile, Inventory, take_inventory
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.index_files import open_puffin
from puffin_ann.search.versions import SMALL_BLOBS, IndexVersion

log = logging.getLogger("puffin_ann")

SMALL = frozenset({routing_blob.TYPE, *SMALL_BLOBS})
"""Types of the blobs that every search reads before it probes a shard."""


@dataclass(frozen=True)
class Damage:
    """What is wrong with the bytes of a published file.

    Attributes:
        file: the file.
        index: whose blob it is; empty where the file cannot be read at all.
        what: the problem, in one sentence.
        remedy: what repairs it.
    """

    file: IndexFile
    index: str
    what: str
    remedy: str = ""

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes concerned, as far as known."""
        return (self.index,) if self.index else ()


def find_damage(inventory: Inventory, *, quick: bool = False) -> list[Damage]:
    """Look for damage in all published files; with `quick` in what is small of each.

    Not in those that are only kept since newer versions name them: what these need of them is
    looked at with them.
    """
    found: list[Damage] = []
    registered = {canonical(file.path) for file in inventory.files if file.entries}
    newest = {file.path for file in live_files(inventory.published).values()}
    for file in inventory.files:
        if not file.is_published or file.bytes is None:
            continue
        if file.path not in newest and not file.needs <= registered:
            continue
        if file.problem:
            found.append(Damage(file, "", file.problem))
        else:
            found += _damage_of(inventory.table, file, SMALL if quick else OURS.keys())
    whole = live_files(_without(inventory, found).published)
    lost = plan_guard(inventory).lost
    table = inventory.table
    return [replace(damage, remedy=_remedy(table, damage, whole, lost)) for damage in found]


def require_whole(table: Table, version: IndexVersion) -> None:
    """Read a version's files, and refuse those of which its blobs are not as they were written.

    Raises:
        DamagedIndexError: names the file, the problem and what repairs it.
    """
    inventory = take_inventory(table)
    paths = {version.path, *version.staged}
    suspects = [file for file in inventory.files if file.path in paths and file.bytes is not None]
    if not any(_damage_of(table, suspect, OURS.keys()) for suspect in suspects):
        return
    for damage in find_damage(inventory):  # all files, to tell which others are whole
        if damage.file.path in paths and damage.index in ("", version.index):
            raise DamagedIndexError(f"{damage.file.path}: {damage.what}; {damage.remedy}")


def _damage_of(table: Table, file: IndexFile, kinds: AbstractSet[str]) -> list[Damage]:
    try:
        return [Damage(file, *damage) for damage in damages(table, file, kinds)]
    except (FormatError, FileNotFoundError) as error:
        return [Damage(file, "", str(error))]


def _is_beyond_us(table: Table, file: IndexFile) -> bool:
    """Tell whether there is something else in a file's place, such as a directory."""
    return is_folder(table.io, file.path)


def _remedy(
    table: Table, damage: Damage, whole: Mapping[str, IndexFile], lost: Sequence[str]
) -> str:
    names, is_beyond_us = damage.indexes or lost, _is_beyond_us(table, damage.file)
    fix = f"'puffin-ann doctor {name_of(table)} --fix'"
    builds = [f"'puffin-ann build {name} --force'" for name in names if name not in whole]
    by_hand = "make it readable, or move it away by hand"
    if builds:
        again = f"build it again: {', '.join(builds)}; no other file holds it whole"
        return f"{by_hand}, and {again}" if is_beyond_us else again
    if is_beyond_us:
        return f"{by_hand}: other files hold everything known to be in it"
    if not names:
        return f"{fix} removes it: other files hold everything known to be in it"
    sources = ", ".join(sorted({whole[name].path for name in names}))
    return (
        f"{fix} publishes what {sources} holds in its place; where that covers less, "
        f"'puffin-ann build {names[0]}' does the rest"
    )


def damages(
    table: Table, file: IndexFile, kinds: AbstractSet[str] = OURS.keys()
) -> Iterator[tuple[str, str]]:
    """Read blobs of some types as streams; yield index and problem of those not as written.

    Of an index whose blobs all are, what they say is compared: with all types shard by shard,
    unpacked to a temporary folder.

    Raises:
        FormatError: the file is not even a Puffin file.
        FileNotFoundError: it is gone.
        StoreUnavailableError: its store does not say, which says nothing of its bytes.
    """
    bad: set[str] = set()
    with open_puffin(table.io, file.path, file.bytes) as reader:
        for blob in reader.metadata.blobs:
            if blob.type not in kinds:
                continue
            try:
                _read_whole(reader, blob)
            except FormatError as error:
                bad.add(blob.properties.get("index", ""))
                place = " ".join(f"{key} {value}" for key, value in sorted(blob.properties.items()))
                yield blob.properties.get("index", ""), f"{blob.type} of {place}: {error}"
    unpack = kinds >= OURS.keys()
    for index in sorted({held.index for held in file.holds} - bad):
        problem = contradiction(table.io, file.path, index, file.bytes, unpack=unpack)
        if problem is not None:
            yield index, problem


def _read_whole(reader: PuffinReader, blob: BlobMetadata) -> None:
    stored = io.BytesIO(reader.read(blob)) if blob.compression_codec else reader.open(blob)
    sections_of(blob.type, stored).verify()


def repair(table: Table, found: Sequence[Damage]) -> tuple[frozenset[str], list[str]]:
    """Put what is whole in the place of damaged files; returns those files, and what was done.

    Files that are read without an error now, those that hold what no other file has whole, and
    those that others may need, stay as they are.

    Raises:
        ConflictError: the table was changed during every attempt; what was done so far is sound.
        UnclearCommitError: the catalog's answer was lost; no file was removed.
    """
    actions: list[str] = []
    return retry_on_conflict("doctor", lambda: _repaired(table, found, actions)), actions


def _repaired(table: Table, found: Sequence[Damage], actions: list[str]) -> frozenset[str]:
    """Note each action once it is done: what comes after it may be superseded."""
    inventory = take_inventory(table)
    confirmed = _confirmed(inventory, {damage.file.path for damage in found})
    rest = _without(inventory, confirmed)
    whole = live_files(rest.published)
    lost = plan_guard(rest).lost
    damaged = {damage.file.path: damage.file for damage in confirmed}
    needed = rest.needed
    dispensable = {
        path
        for path, file in damaged.items()
        if canonical(path) not in needed
        and _is_dispensable(inventory.table, file, confirmed, whole, lost)
    }
    if not dispensable:
        return frozenset()
    protection = Protection.of(inventory.table)
    kept = {path: why for path in dispensable if (why := protection.why_file_kept(path))}
    untagged = rest.untagged(whole)
    if any(_is_needed(inventory, damaged[path], untagged, path in kept) for path in dispensable):
        path, snapshot_id = republish(rest, untagged, replaces=dispensable)
        actions.append(
            f"published {path} as snapshot {snapshot_id}, of what is whole: "
            + ", ".join(f"index {index} of {file.path}" for index, file in sorted(untagged.items()))
        )
    actions += [f"left damaged file {path} as it is: {why}" for path, why in sorted(kept.items())]
    if dispensable - kept.keys():
        actions += _remove(inventory, dispensable - kept.keys())
    return frozenset(dispensable - kept.keys())


def _confirmed(inventory: Inventory, paths: set[str]) -> list[Damage]:
    """Read suspects a second time: what a network garbled is whole in the store."""
    confirmed = []
    for file in inventory.files:
        if file.path not in paths or file.bytes is None:
            continue
        if is_folder(inventory.table.io, file.path):
            log.warning("doctor: %s is a directory, and is left alone", file.path)
            continue
        try:
            confirmed += [Damage(file, *damage) for damage in damages(inventory.table, file)]
        except FormatError as error:
            confirmed.append(Damage(file, "", str(error)))
        except FileNotFoundError:
            log.warning("doctor: %s is gone in the meantime", file.path)
    return confirmed


def _without(inventory: Inventory, found: Sequence[Damage]) -> Inventory:
    """Return the inventory as if files did not hold what is damaged in them."""
    bad = {(damage.file.path, damage.index) for damage in found}

    def whole(file: IndexFile) -> IndexFile:
        if (file.path, "") in bad:
            return replace(file, holds=())
        holds = tuple(held for held in file.holds if (file.path, held.index) not in bad)
        return replace(file, holds=holds)

    return replace(inventory, files=tuple(map(whole, inventory.files)))


def _is_dispensable(
    table: Table,
    file: IndexFile,
    confirmed: Sequence[Damage],
    whole: Mapping[str, IndexFile],
    lost: Sequence[str],
) -> bool:
    """Tell whether another file has all that a damaged file holds, or it can be copied from it."""
    if file.holds:
        return {held.index for held in file.holds} <= whole.keys()
    bad = {damage.index for damage in confirmed if damage.file.path == file.path}
    # If it is not even known which indexes it holds, no index may be missing.
    return bool(whole) and not lost and ("" in bad or _indexes_in(table, file) <= bad)


def _indexes_in(table: Table, file: IndexFile) -> set[str]:
    with open_puffin(table.io, file.path, file.bytes) as reader:
        return {
            blob.properties.get("index", "") for blob in reader.metadata.blobs if blob.type in OURS
        }


def _is_needed(
    inventory: Inventory, file: IndexFile, whole: Mapping[str, IndexFile], is_kept: bool
) -> bool:
    """Tell whether something has to be published before a file can go, or is not needed."""
    if whole and inventory.head in file.entries:
        return True
    if any(other.path == file.path for other in whole.values()):
        return True
    listed = (blob for entry in file.entries.values() for blob in entry.blob_metadata)
    return not is_kept and any(map(is_foreign, listed))


def _remove(inventory: Inventory, paths: set[str]) -> list[str]:
    table = reload_table(inventory.table)
    held = {
        slot: entry.statistics_path
        for slot, entry in slots(table).items()
        if entry.statistics_path in paths
    }
    change = SlotChange(seen=held, clear=frozenset(held))
    if not change.is_empty:
        change_slots(table, change, expected_head=table.metadata.current_snapshot_id)
    protection = Protection.of(table)
    return [_deleted(table, path, protection.why_file_kept(path)) for path in sorted(paths)]


def _deleted(table: Table, path: str, why_kept: str) -> str:
    if why_kept:
        return f"registered no more, but did not remove, damaged file {path}: {why_kept}"
    delete_object(table.io, path)
    return f"removed damaged file {path}"
