"""What maintains layered versions, killed before anything it stores, removes or commits.

Searches stay right meanwhile, the retry ends it, and a clean-up leaves only what is named.
"""

from collections.abc import Iterator

import pytest

from puffin_ann import open_index
from puffin_ann.declaration import RefreshOptions
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.metadata.own_tags import held_files, own_tags
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.versions.inventory import take_inventory
from puffin_ann.settings import settings
from tests.support.lake.equality_scans import read_equality_deletes
from tests.support.lifecycle import crashing_runs
from tests.support.lifecycle.crashed_table import DECLARED, INDEX, LATER_MS, TABLE, CrashedTable
from tests.support.lifecycle.crashing_runs import KILLED, Ended
from tests.support.servers.other_catalogs import advised

LAYERED = DECLARED.model_copy(update={"refresh": RefreshOptions(min_rows=0, delta_ratio=1.0)})
"""Added rows stay in deltas for long: a merge writes all shards again."""

OTHER = LAYERED.model_copy(update={"name": "other"})


class Scene:
    """Work that is killed: what calls for it, and what it must come to.

    Attributes:
        work: of `crashing_runs.WORK`.
        done_before: the error of a retry where the killed one had done it.
    """

    work = ""
    done_before = ""

    def __init__(self, life: CrashedTable) -> None:
        self.life = life

    def begin(self) -> None:
        """Do once what the work needs."""

    def prepare(self) -> None:
        """Bring about what calls for the work."""
        self.life.follow_in_layers()

    def run(self, event: int = 0) -> Ended:
        """Do the work, or a part of it."""
        return self.life.runs.run(INDEX, "", work=self.work, event=event)

    def look(self) -> None:
        """Search meanwhile."""
        self.life.search()

    def check(self) -> None:
        """Hold the table to what the work promises."""


class Build(Scene):
    work = "build"

    def prepare(self) -> None:
        self.life.follow()
        self.before = self.life.published()

    def run(self, event: int = 0) -> Ended:
        return self.life.runs.run(INDEX, f"build-{self.life.rounds}", work="build", event=event)

    def check(self) -> None:
        assert self.life.published(self.before) == [f"build-{self.life.rounds}"]


class Gather(Scene):
    work = "gather"

    def check(self) -> None:
        assert open_index(TABLE, INDEX).version.needs == frozenset()


class Guard(Scene):
    """Somebody drops all our tags."""

    work = "guard"

    def prepare(self) -> None:
        super().prepare()
        table = load_table(TABLE)
        self.held = held_files(table)
        change = table.manage_snapshots()
        for tag in own_tags(table).values():
            change = change.remove_tag(tag)
        change.commit()

    def check(self) -> None:
        table = load_table(TABLE)
        version = open_index(table, INDEX).version
        assert version.needs
        assert {version.path, *version.needs} <= held_files(table) <= self.held


class Clean(Scene):
    work = "clean"

    def prepare(self) -> None:
        for _ in range(3):
            self.life.follow()
        while not clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS, dry_run=True).gone:
            self.life.follow()  # all that is there is needed still

    def run(self, event: int = 0) -> Ended:
        return self.life.runs.run(INDEX, "", work="clean", event=event, at_ms=LATER_MS)

    def look(self) -> None:
        """Nothing: without a grace period, a version may go while it is searched."""

    def check(self) -> None:
        strays = advised(clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS))
        if strays:
            clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS, forget=strays)
        inventory = take_inventory(load_table(TABLE))
        here = {canonical(file.path) for file in inventory.files if file.bytes is not None}
        newest = inventory.published[:2]
        # Of older ones, whose files are left since these need them, other parts may be gone.
        assert here == {canonical(path) for file in newest for path in (file.path, *file.needs)}


class OfAnother(Scene):
    """Work on another index, which one round takes away."""

    name = OTHER.name

    def begin(self) -> None:
        for name in ("other", "renamed"):
            self.life.declare(OTHER.model_copy(update={"name": name}))

    def build(self) -> None:
        built = self.life.runs.run(self.name, f"{self.name}-{self.life.rounds}", work="build")
        assert built.code == 0
        self.life.follow(self.name)


class Drop(OfAnother):
    work = "drop"
    done_before = "IndexNotFoundError"

    def prepare(self) -> None:
        self.build()

    def run(self, event: int = 0) -> Ended:
        return self.life.runs.run(self.name, "", work="drop", event=event)

    def check(self) -> None:
        with pytest.raises(IndexNotFoundError):
            open_index(TABLE, self.name)
        clean(TABLE, [DECLARED], grace="0s", at_ms=LATER_MS)
        assert not any("other" in tag for tag in own_tags(load_table(TABLE)).values())


class Rename(OfAnother):
    work = "rename"
    done_before = "BadInputError"

    def begin(self) -> None:
        super().begin()
        self.build()

    def prepare(self) -> None:
        self.life.follow_in_layers(self.name)
        self.before, self.name = self.name, {"other": "renamed", "renamed": "other"}[self.name]

    def run(self, event: int = 0) -> Ended:
        return self.life.runs.run(self.name, "", work="rename", event=event, before=self.before)

    def look(self) -> None:
        try:
            self.life.search(self.before)
        except IndexNotFoundError:
            self.life.search(self.name)

    def check(self) -> None:
        self.life.search(self.name)
        with pytest.raises(IndexNotFoundError):
            open_index(TABLE, self.before)


@pytest.fixture
def life(words, tmp_path, monkeypatch) -> Iterator[CrashedTable]:
    monkeypatch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", "0")
    settings.cache_clear()
    read_equality_deletes(monkeypatch)
    life = CrashedTable(words, tmp_path, LAYERED)
    yield life
    life.close()
    settings.cache_clear()


def survive(scene: Scene, event: int) -> bool:
    """Kill the work, look on, do it again; tells whether it was killed before its end."""
    scene.prepare()
    with crashing_runs.searching(scene.look):
        killed = scene.run(event)
        assert killed.code in (0, KILLED)
        scene.life.break_leases()
        again = scene.run()
    assert again.code == 0 or again.error == scene.done_before
    scene.check()
    scene.life.search()
    return killed.code == KILLED


def events_of(scene: Scene) -> int:
    """Do the work once; returns how many events that has."""
    scene.begin()
    scene.prepare()
    whole = scene.run()
    assert whole.code == 0
    scene.check()
    return whole.events


SCENES = [Build, Gather, Guard, Clean, Drop, Rename]


@pytest.mark.parametrize("kind", [Clean, Drop], ids=lambda kind: kind.work)
def test_killed_before_an_event_it_is_done_again(life, kind):
    scene = kind(life)
    events = events_of(scene)
    # In the last third are the commit and what follows it.
    assert survive(scene, 1 + events * 2 // 3)
    life.assert_clean_leaves_nothing()


@pytest.mark.long
@pytest.mark.parametrize("kind", SCENES, ids=lambda kind: kind.work)
def test_killed_before_any_event_it_is_done_again(life, kind):
    scene = kind(life)
    events = events_of(scene)
    killed = [survive(scene, event) for event in range(1, events + 1)]
    assert sum(killed) >= len(killed) - 2
    life.assert_clean_leaves_nothing()
