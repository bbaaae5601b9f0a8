"""Folders into which no other user of this machine can put anything, nor another in their place.

What is in the cache is trusted: shards are searched as they are, and compiled kernels are run. A
folder is private if it and everything above it belongs to this user or to root, and nobody else may
write there. Above it a folder may be open to all if it is sticky, as `/tmp` is: in there only its
owner can rename or remove an entry, and entries of others are refused. Links are followed where
this user or root made them.

Nothing can come between such a check and the use of the folder: everyone who could change the
outcome is trusted. So the whole path is checked, the folder's real one, which is returned.
"""

import contextlib
import errno
import grp
import os
import pwd
import stat
from pathlib import Path

from puffin_ann.errors import UnsafeFolderError

MOST_LINKS = 40
"""As many as Linux follows."""

_OTHERS_ENTER, _GROUP_WRITES, _OTHERS_WRITE = 0o011, 0o020, 0o002


def make(folder: Path) -> Path:
    """Return a private folder's real path; it and what is missing above it are made, mode 0700.

    Raises:
        UnsafeFolderError: others may write there; says who, and where.
        OSError: it cannot be made, or is something else.
    """
    there, missing = Path(os.path.abspath(folder)), []
    while not os.path.lexists(there):
        missing.append(there.name)
        there = there.parent
    real, is_shared = _walked(there)
    for name in reversed(missing):
        _make(real / name)
        real, is_shared = _walked(real / name)
    if is_shared:
        raise UnsafeFolderError(f"{real} is open to other users")
    return real


def make_in(base: Path) -> Path:
    """Return a private folder of this user: `base`, or one in it where `base` is for all users.

    Raises:
        UnsafeFolderError, OSError: as for `make`.
    """
    try:
        _, is_shared = _walked(Path(os.path.abspath(base)))
    except FileNotFoundError:
        is_shared = False
    return make(base / f"u{os.geteuid()}" if is_shared else base)


def require_private(folder: Path) -> None:
    """Refuse a folder that is there and is not private.

    Raises:
        UnsafeFolderError: others may write there; says who, and where.
        OSError: it is not there, or cannot be looked at.
    """
    real, is_shared = _walked(Path(os.path.abspath(folder)))
    if is_shared:
        raise UnsafeFolderError(f"{real} is open to other users")


def is_ours(status: os.stat_result) -> bool:
    """Tell whether a file belongs to this user, or to root, and nobody else may write to it."""
    return _is_trusted(status.st_uid) and not status.st_mode & (_GROUP_WRITES | _OTHERS_WRITE)


def belongs_to_us(path: Path) -> bool:
    """Tell whether what lies at a path, a link included, belongs to this user or to root."""
    return _is_trusted(os.lstat(path).st_uid)


def _make(folder: Path) -> None:
    # It may be there by now, made by a process of ours or by another user: it is looked at next.
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def _walked(path: Path) -> tuple[Path, bool]:
    """Go a way from the root, refusing what others could change.

    Returns:
        The real path, and whether others may add entries at its end, where they cannot touch ours.
    """
    steps, real = list(reversed(path.parts[1:])), "/"  # no `Path`: this is done for each shard
    is_closed, is_shared = _looked_at(real, os.lstat(real), is_closed=False)
    links = 0
    while steps:
        step = steps.pop()
        there = os.path.join(real, step)
        status = os.lstat(there)
        if not stat.S_ISLNK(status.st_mode):
            if step == "..":
                real, is_closed = os.path.dirname(real), False
            else:
                real = there
            is_closed, is_shared = _looked_at(real, status, is_closed=is_closed)
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        _require_owner(there, status, "a link of")
        target = Path(os.readlink(there))
        steps += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        if target.is_absolute():
            real, is_closed = "/", False
    return Path(real), is_shared


def _looked_at(folder: str, status: os.stat_result, *, is_closed: bool) -> tuple[bool, bool]:
    """Refuse a folder that is not ours, or whose entries others may exchange.

    Args:
        folder: the next on the way.
        status: of it.
        is_closed: only we may enter what is above, so that it matters not what is allowed here.

    Returns:
        Whether that holds for what is below, and whether others may add entries here.
    """
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    _require_owner(folder, status, "a folder of")
    is_shared = not is_closed and _others_write(folder, status)
    if is_shared and not status.st_mode & stat.S_ISVTX:
        raise UnsafeFolderError(
            f"other users may write to {folder} (mode {stat.S_IMODE(status.st_mode):04o}), so that "
            f"they may exchange what is in it: 'chmod go-w {folder}' keeps them out, 'chmod +t' "
            "keeps their hands off each other's files"
        )
    is_closed |= status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_ENTER
    return is_closed, is_shared


def _require_owner(path: str, status: os.stat_result, what: str) -> None:
    if not _is_trusted(status.st_uid):
        raise UnsafeFolderError(f"{path} is {what} {_user(status.st_uid)}")


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.geteuid())


def _others_write(folder: str, status: os.stat_result) -> bool:
    if status.st_mode & _OTHERS_WRITE:
        return True
    return bool(status.st_mode & _GROUP_WRITES) and not _is_own_group(folder, status)


def _is_own_group(folder: str, status: os.stat_result) -> bool:
    """Tell whether a folder's group has nobody in it but its owner, or is root's.

    Many systems give each user a group of the user's name, and let it write to all that is made.
    Container images let root's group write, so that any user may run them.
    """
    if group_is_roots(folder, status):
        return True
    if _has_acl(folder):
        return False  # the group's bits stand for other users, too
    try:
        group, user = grp.getgrgid(status.st_gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def group_is_roots(place: str | Path | int, status: os.stat_result) -> bool:
    """Tell whether what a group may do to a folder or file is what root's group may, and no other.

    Args:
        place: its path, or a descriptor of it.
        status: of it.
    """
    return status.st_gid == 0 and not _has_acl(place)


def _has_acl(place: str | Path | int) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(place)
    except (OSError, AttributeError):  # not on this file system, or this kind of machine
        return False


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"user {uid}"
