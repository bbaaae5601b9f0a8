"""Folders of the cache are used only where no other user can put anything into them."""

import os
import stat
from pathlib import Path

import pytest

from puffin_ann import private_folders
from puffin_ann.errors import UnsafeFolderError
from puffin_ann.private_folders import make, make_in, require_private

STRANGER = 12_345


@pytest.fixture
def home(tmp_path):
    return tmp_path.resolve()


@pytest.fixture
def opened(home, monkeypatch):
    """A folder that everybody may enter, whatever tests' temporary folders lie in."""
    monkeypatch.setattr(private_folders, "_OTHERS_ENTER", 0o700)
    return home


@pytest.fixture
def seems(monkeypatch):
    """Have what bears a name seem to belong to another user or group."""

    def seem(name, field, number):
        real = os.lstat

        def changed(path):
            found = list(real(path))
            if Path(path).name == name:
                found[field] = number
            return os.stat_result(found)

        monkeypatch.setattr(private_folders.os, "lstat", changed)

    return seem


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_what_is_made_is_for_this_user_alone_whatever_the_mask(home):
    before = os.umask(0)
    try:
        assert make(home / "a" / "b" / "c") == home / "a" / "b" / "c"
    finally:
        os.umask(before)
    assert {mode(home / name) for name in ("a", "a/b", "a/b/c")} == {0o700}


@pytest.mark.parametrize("loose", [0o777, 0o757])
def test_a_folder_that_others_may_write_to_is_refused_by_name(opened, loose):
    (opened / "loose").mkdir()
    (opened / "loose").chmod(loose)
    with pytest.raises(UnsafeFolderError, match=rf"write to {opened}/loose \(mode 0{loose:o}\)"):
        make(opened / "loose")


def test_a_folder_within_one_that_others_may_write_to_is_refused(opened):
    make(opened / "loose" / "mine")
    (opened / "loose").chmod(0o777)
    with pytest.raises(UnsafeFolderError, match="exchange"):
        make(opened / "loose" / "mine")


def test_what_only_this_user_can_reach_may_have_any_mode(home):
    make(home / "closed" / "loose")
    (home / "closed" / "loose").chmod(0o777)
    assert make(home / "closed" / "loose") == home / "closed" / "loose"


def test_a_sticky_folder_may_hold_a_private_one_but_is_none(opened):
    (opened / "shared").mkdir()
    (opened / "shared").chmod(0o1777)
    assert make(opened / "shared" / "mine") == opened / "shared" / "mine"
    with pytest.raises(UnsafeFolderError, match="open to other users"):
        make(opened / "shared")
    with pytest.raises(UnsafeFolderError, match="open to other users"):
        require_private(opened / "shared")


def test_in_a_folder_for_all_each_user_has_one(opened):
    (opened / "shared").mkdir()
    (opened / "shared").chmod(0o1777)
    assert make_in(opened / "shared") == opened / "shared" / f"u{os.geteuid()}"
    assert make_in(opened / "mine") == opened / "mine"


def test_what_another_user_made_is_refused_by_who_it_was(home, seems):
    make(home / "theirs")
    seems("theirs", stat.ST_UID, STRANGER)
    for wanted in (home / "theirs", home / "theirs" / "mine"):
        with pytest.raises(UnsafeFolderError, match="theirs is a folder of user 12345"):
            make(wanted)


def test_a_link_of_another_user_is_refused(opened, seems):
    make(opened / "real")
    (opened / "link").symlink_to(opened / "real")
    seems("link", stat.ST_UID, STRANGER)
    with pytest.raises(UnsafeFolderError, match="link is a link of user 12345"):
        make(opened / "link" / "deeper")


def test_own_links_are_followed_and_where_they_lead_is_looked_at(opened):
    make(opened / "real" / "inner")
    (opened / "link").symlink_to("real/../real/inner")
    assert make(opened / "link" / "deeper") == opened / "real" / "inner" / "deeper"
    (opened / "real").chmod(0o777)
    with pytest.raises(UnsafeFolderError, match=rf"write to {opened}/real"):
        make(opened / "link" / "deeper")


def test_links_in_a_circle_and_files_are_no_folders(opened):
    (opened / "one").symlink_to("two")
    (opened / "two").symlink_to("one")
    (opened / "file").write_text("")
    for wrong in ("one", "file", "file/below"):
        with pytest.raises(OSError, match=wrong.split("/")[0]):
            make(opened / wrong)


def test_what_another_user_put_in_the_way_meanwhile_is_refused(opened, monkeypatch):
    """Between finding that a folder is missing and making it, in a folder that is open to all."""
    (opened / "shared").mkdir()
    (opened / "shared").chmod(0o1777)
    mkdir = os.mkdir

    def overtaken(path, mode):
        mkdir(path, mode)
        Path(path).chmod(0o777)
        raise FileExistsError(17, "File exists", str(path))

    monkeypatch.setattr(private_folders.os, "mkdir", overtaken)
    with pytest.raises(UnsafeFolderError, match="mine"):
        make(opened / "shared" / "mine")


@pytest.mark.parametrize(
    ("group", "members", "private"),
    [("ann", [], True), ("ann", ["ann"], True), ("ann", ["bob"], False), ("staff", [], False)],
)
def test_a_group_of_the_user_alone_may_write(opened, seems, monkeypatch, group, members, private):
    folder = make(opened / "mine")
    folder.chmod(0o775)
    monkeypatch.setattr(private_folders, "_has_acl", lambda folder: False)
    monkeypatch.setattr(private_folders.grp, "getgrgid", lambda gid: Named(group, members))
    monkeypatch.setattr(private_folders.pwd, "getpwuid", lambda uid: Named("ann", []))
    seems("mine", stat.ST_GID, 4711)
    if private:
        assert make(folder) == folder
    else:
        with pytest.raises(UnsafeFolderError, match="mine"):
            make(folder)


class Named:
    """An entry of the databases of users and groups."""

    def __init__(self, name, members):
        self.gr_name = self.pw_name = name
        self.gr_mem = members


def test_where_other_users_may_write_by_a_list_the_group_is_not_alone(opened, monkeypatch):
    folder = make(opened / "mine")
    folder.chmod(0o775)
    monkeypatch.setattr(private_folders, "_has_acl", lambda folder: True)
    with pytest.raises(UnsafeFolderError, match="mine"):
        make(folder)
