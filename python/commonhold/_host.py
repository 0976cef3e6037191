"""Hosts: names, and everything done by name. The functions here use the default host."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Unpack

from . import _native
from ._arrays import array_on_host
from ._errors import ExistsError, NotFoundError, invalid
from ._files import File, backing
from ._native import Object
from ._records import DirectoryStat, HostStatus, MappingStat, ObjectStat
from ._types import words_of
from ._typing import (
    Array,
    CreateOptions,
    DType,
    Inherit,
    Mode,
    Name,
    Order,
    PageIn,
    PageOut,
    Shape,
    Sync,
    check_options,
)

class Host:
    """A connection to a host. All of a process to the same host share one, over fork too."""

    __slots__ = ("_native",)

    def __init__(self, state_directory: str | os.PathLike[str]) -> None:
        self._native = _native.connect(state_directory)

    @property
    def state_directory(self) -> Path:
        """Where the host keeps its state, and by which it is found."""
        return Path(self._native.state_directory)

    def open(self, name: Name, mode: Mode = "r", *, movable: bool = False) -> Object:
        """See `commonhold.open`."""
        return self._native.open(os.fspath(name), mode, movable=movable)

    def array(
        self,
        name: Name,
        shape: Shape | None = None,
        dtype: DType = None,
        *,
        create: bool | Literal["new"] = False,
        size: int | None = None,
        mode: Mode | None = None,
        offset: int = 0,
        order: Order | None = None,
        lock: bool = False,
        prefetch: bool = False,
        in_thread: bool = False,
        inherit: Inherit = "share",
        **options: Unpack[CreateOptions],
    ) -> Array:
        """See `commonhold.array`."""
        return array_on_host(
            self, name, shape, dtype, create=create, size=size, mode=mode, options=options,
            how={"offset": offset, "order": order, "lock": lock, "prefetch": prefetch, "in_thread": in_thread,
                 "inherit": inherit},
        )  # fmt: skip

    def create(
        self, name: Name | None, size: int | None = None, *, description: str = "", **options: Unpack[CreateOptions]
    ) -> Object:
        """See `commonhold.create`."""
        check_options("create", options)
        return self._create(name, size, lambda _: description, **options)

    def create_nameless(
        self, size: int, *, description: str = "", controlled: bool = False, freezable: bool = False
    ) -> Object:
        """See `commonhold.create_nameless`."""
        return self._native.create_nameless(size, description, controlled, freezable)

    def _create(
        self,
        name: Name | None,
        size: int | None,
        description: Callable[[int], str],
        *,
        ephemeral: bool | float | None = None,
        **options: Any,
    ) -> Object:
        """Creates an object: of no name, under one that nobody has."""
        if name is not None:
            return self._create_named(os.fspath(name), size, description, _milliseconds(ephemeral), **options)
        ephemeral_ms = _milliseconds(True if ephemeral is None else ephemeral)
        while True:
            try:
                return self._create_named(f"/unnamed-{secrets.token_hex(8)}", size, description, ephemeral_ms, **options)
            except ExistsError:
                pass  # of 64 random bits the same twice: others, then

    def _create_named(
        self,
        name: str,
        size: int | None,
        description: Callable[[int], str],
        ephemeral_ms: int | None,
        *,
        file: File | None = None,
        pager: str | None = None,
        sync: Sync = "plain",
        permissions: int = 0o600,
        controlled: bool = False,
        freezable: bool = False,
        reserve: bool | None = None,
        on_last_death: Literal["keep", "revert"] = "keep",
        budget: int | None = None,
        fault_deadline_ms: int | None = None,
        pager_deadline_ms: int | None = None,
        coherence: Literal["local", "strict", "explicit"] = "local",
        on_loss: Literal["error", "revert"] = "error",
        scheduler: Literal["central", "forwarding"] | None = None,
        page_size: int | None = None,
        replicas: int = 0,
        home_moves: bool = False,
        translation: Literal["paged", "shared-tables", "shared-tables-4k", "wired"] = "paged",
        fixed: bool = False,
        room: int | None = None,
    ) -> Object:
        if file is not None and pager is not None:
            raise TypeError("an object has one pager: give a file or a pager")
        with backing(file, size) as (descriptor, size_bytes):
            return self._native.create(
                name,
                size_bytes=size_bytes,
                fd=descriptor,
                pager=pager,
                sync=sync,
                permissions=permissions,
                description=description(size_bytes),
                controlled=controlled,
                freezable=freezable,
                reserve=reserve,
                on_last_death=on_last_death,
                budget_bytes=budget,
                fault_deadline_ms=fault_deadline_ms,
                pager_deadline_ms=pager_deadline_ms,
                coherence=coherence,
                on_loss=on_loss,
                scheduler=scheduler,
                page_size_bytes=page_size,
                replicas=replicas,
                home_moves=home_moves,
                translation=translation,
                fixed=fixed,
                room_bytes=room,
                ephemeral_ms=ephemeral_ms,
            )

    def stat(self, name: Name) -> ObjectStat | DirectoryStat:
        """What is known of an object or a directory."""
        return self._native.stat(os.fspath(name))

    def exists(self, name: Name) -> bool:
        """See `commonhold.exists`."""
        try:
            self._native.stat(os.fspath(name))
        except NotFoundError:
            return False
        return True

    def ls(self, directory: Name = "/") -> list[ObjectStat | DirectoryStat]:
        """The entries of a directory, in order."""
        return self._native.ls(os.fspath(directory))

    def resize(self, name: Name, size: int) -> None:
        """Changes the size of an object. Touching a mapping past a smaller size raises SIGBUS."""
        self._native.resize(os.fspath(name), size)

    def tag(self, name: Name, what: Any, offset: int = 0, length: int | None = None) -> None:
        """Says what is in whole pages of an object, for hosts of other machine types."""
        self._native.tag(os.fspath(name), offset, length, words_of(what))

    def remove(self, name: Name) -> None:
        """Frees the name now, and the memory when the last mapping goes. A backing file is never deleted."""
        self._native.remove(os.fspath(name))

    def rename(self, old: Name, new: Name, *, replace: bool = False) -> None:
        """Gives an object or a directory another name."""
        self._native.rename(os.fspath(old), os.fspath(new), replace)

    def chmod(self, name: Name, mode: int) -> None:
        """Changes the mode bits of an object or a directory."""
        self._native.chmod(os.fspath(name), mode)

    def chown(self, name: Name, uid: int | None = None, gid: int | None = None) -> None:
        """Changes owner or group of an object or a directory."""
        self._native.chown(os.fspath(name), uid, gid)

    def revert(self, name: Name) -> int:
        """Drops what was not synced; gives the number of pages dropped."""
        return self._native.revert(os.fspath(name))

    def map_info(self, name: Name) -> list[MappingStat]:
        """The mappings of an object, of all processes."""
        return self._native.map_info(os.fspath(name))

    def status(self) -> HostStatus:
        """State of the host."""
        return self._native.status()

    def serve_pager(self, name: Name, page_in: PageIn, page_out: PageOut | None = None) -> None:
        """See `commonhold.serve_pager`."""
        _native.serve_pager(self._native, os.fspath(name), page_in, page_out)

    def __repr__(self) -> str:
        return f"<commonhold.Host {self.state_directory}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Host, (self.state_directory,)


def _milliseconds(ephemeral: bool | float | None) -> int | None:
    """How long an object stays when nobody uses it any more; None: for good."""
    if ephemeral is None or ephemeral is False:
        return None
    seconds = 0.0 if ephemeral is True else float(ephemeral)
    if not 0 <= seconds < 1 << 22:
        raise invalid(f"ephemeral={ephemeral!r}: give True, or a number of seconds from 0 to {(1 << 22) - 1}")
    return round(seconds * 1000)


def default_host() -> Host:
    """The host that `COMMONHOLD_HOST` names, else the system's, else the user's own, started if need be."""
    host = Host.__new__(Host)
    host._native = _native.default_host()
    return host


def connect(state_directory: str | os.PathLike[str] | None = None) -> Host:
    """The host of that state directory (which must be running), or the default one."""
    return default_host() if state_directory is None else Host(state_directory)


def open(name: Name, mode: Mode = "r", *, movable: bool = False) -> Object:
    """Opens an object for reading (`r`), or for reading and writing (`r+`). A wired object that is opened `movable` may
    move while it is open, and is used under guards (`Object.guard`).

    Raises `NotFoundError`, or `PermissionDeniedError` if its mode bits do not allow it.
    """
    return _native.default_host().open(os.fspath(name), mode, movable=movable)


def create(
    name: Name | None,
    size: int | None = None,
    *,
    file: File | None = None,
    pager: str | None = None,
    sync: Sync = "plain",
    permissions: int = 0o600,
    description: str = "",
    controlled: bool = False,
    freezable: bool = False,
    reserve: bool | None = None,
    on_last_death: Literal["keep", "revert"] = "keep",
    budget: int | None = None,
    fault_deadline_ms: int | None = None,
    pager_deadline_ms: int | None = None,
    coherence: Literal["local", "strict", "explicit"] = "local",
    on_loss: Literal["error", "revert"] = "error",
    scheduler: Literal["central", "forwarding"] | None = None,
    page_size: int | None = None,
    replicas: int = 0,
    home_moves: bool = False,
    translation: Literal["paged", "shared-tables", "shared-tables-4k", "wired"] = "paged",
    fixed: bool = False,
    room: int | None = None,
    ephemeral: bool | float | None = None,
) -> Object:
    """Creates an object and opens it for reading and writing. None: under a name that nobody has, which is in its `name`.

    * `size`: in bytes; with a `file`, that of the file unless given.
    * `file`: the file (a path, descriptor or file object) whose bytes the object is, in place. A path that is not
      there is made, if the size is given. Without a file or `pager`, the object is anonymous.
    * `pager`: the name under which a program of yours serves its pages (`serve_pager`).
    * `sync`: what sync promises. `plain`: msync and fsync. `ordered`: pages reach the file only by sync, unlock or
      eviction. `atomic`: what is stored changes only by sync, and by each sync wholly or not at all.
    * `permissions`: mode bits, such as `0o640`.
    * `description`: data type of its elements; `array` writes and checks it.
    * `controlled`: the host serves its faults even if nothing else asks for it: for page-holding locks.
    * `freezable`: allow `sync(freeze=True)` and `snapshot`.
    * `budget`: most bytes of memory that its pages take, 1 MiB at least; the rest waits in its file or on disk.
    * `reserve`: take its memory now; yes unless it has a file or a pager.
    * `on_last_death`: unsynced pages of a killed last process `keep`, or `revert`.
    * `coherence`: `strict` objects are mapped by processes of all hosts of the cluster, and a page has one writer or
      many readers among them; of `explicit` ones other hosts see what was written after a `sync`; those of a `local`
      one are of this host.
    * `scheduler`: who schedules a strict object's pages: all hosts that have it (`forwarding`), or its home (`central`).
      Unless given, `central` with `freezable` or `home_moves`, which need it, and `forwarding` else.
    * `page_size`: how many bytes of a strict object go from host to host at once: a power of two from 4096, which it is
      unless given, to 2 MiB.
    * `on_loss`: touching a page whose newest version was lost with a host is an `error` (SIGBUS), or `revert`: the
      version before serves.
    * `replicas`: of a strict object that all hosts schedule or whose home moves, so many hosts can be lost without losing
      what another host has read: as many keep each version, beside the one that has it newest.
    * `home_moves`: another host becomes the object's home when its home is lost; with `replicas`, or with a `file` that those
      hosts have under the same path, and a cluster whose registry is etcd.
    * `translation`: with `shared-tables`, its processes share the page tables of it, which is of huge pages that are all
      taken now; with `shared-tables-4k` of ordinary pages, by the kernel module segshm. Its size is rounded up to a multiple
      of 2 MiB. With `wired`, no fault ever happens in it: its pages are there when it is mapped, those of a
      `file` or a `pager` too.
    * `fixed`: it has one address in all processes, on all hosts that share it, so that pointers may be kept in it; `room`: it
      may grow to so many bytes. Mapping it fails where something lies there.
    * `ephemeral`: its name, and with it the object, goes with its last user, closed, ended or killed; a number: so many seconds
      after. An object that is created with None for its name is ephemeral, unless that is False.
    * `fault_deadline_ms`, `pager_deadline_ms`: after so many milliseconds a touch raises SIGBUS (unless given, 60,000 of an
      object that hosts share, of others never), a pager has failed.

    Raises `ExistsError` if the name is taken, `NotFoundError` if the file is not there and no size is given,
    `InvalidError` for options that do not go together, `PermissionDeniedError` where names may not be added, and
    `Error` with `kind` `no_space` or `quota` if memory or disk cannot be had: nothing is left behind then.
    """
    return default_host()._create(
        name, size, lambda _: description, file=file, pager=pager, sync=sync, permissions=permissions,
        controlled=controlled, freezable=freezable, reserve=reserve, on_last_death=on_last_death, budget=budget,
        fault_deadline_ms=fault_deadline_ms, pager_deadline_ms=pager_deadline_ms, coherence=coherence, on_loss=on_loss,
        scheduler=scheduler, page_size=page_size, replicas=replicas,
        home_moves=home_moves, translation=translation, fixed=fixed, room=room, ephemeral=ephemeral,
    )  # fmt: skip


def create_nameless(
    size: int, *, description: str = "", controlled: bool = False, freezable: bool = False
) -> Object:
    """Creates an object that never has a name, of so many bytes: others get it by a message (`Channel.send_object`), and it
    ends with its last user. It is anonymous, paged and local, and keeps its size. No disk is waited for."""
    return default_host().create_nameless(size, description=description, controlled=controlled, freezable=freezable)


def stat(name: Name) -> ObjectStat | DirectoryStat:
    """What is known of an object or a directory."""
    return default_host().stat(name)


def exists(name: Name) -> bool:
    """Whether there is an object or a directory of that name. `array(name, create="new")` is for who wants to be the first:
    by the next call it may be otherwise."""
    return default_host().exists(name)


def ls(directory: Name = "/") -> list[ObjectStat | DirectoryStat]:
    """The entries of a directory, in order."""
    return default_host().ls(directory)


def resize(name: Name, size: int) -> None:
    """Changes the size of an object, in bytes; its file is cut or grown with it.

    Touching a mapping past a smaller size raises SIGBUS, which ends the program. Raises `NotFoundError`,
    `PermissionDeniedError`, or `Error` with `kind` `no_space`.
    """
    default_host().resize(name, size)


def remove(name: Name) -> None:
    """Frees the name now, and the memory when the last mapping goes. A backing file is never deleted.

    Of a directory: if it is empty. Raises `NotFoundError`, or `PermissionDeniedError`.
    """
    default_host().remove(name)


def rename(old: Name, new: Name, *, replace: bool = False) -> None:
    """Gives an object or a directory another name. With `replace=True` an object that has the new name loses it in the same
    step, and who has it open keeps it. Raises `NotFoundError`, `ExistsError` or `PermissionDeniedError`."""
    default_host().rename(old, new, replace=replace)


def chmod(name: Name, mode: int) -> None:
    """Changes the mode bits of an object or a directory, such as `0o640`. Only its owner and root may."""
    default_host().chmod(name, mode)


def chown(name: Name, uid: int | None = None, gid: int | None = None) -> None:
    """Changes owner or group (numbers; None: as it is) of an object or a directory. Only root may give one away."""
    default_host().chown(name, uid, gid)


def map_info(name: Name) -> list[MappingStat]:
    """The mappings of an object, of all processes."""
    return default_host().map_info(name)


def status() -> HostStatus:
    """State of the host."""
    return default_host().status()


def serve_pager(name: Name, page_in: PageIn, page_out: PageOut | None = None) -> None:
    """Serves the pages of the objects created with `pager=name`, until the host ends or Ctrl-C.

    `page_in(object, offset, length)` gives `length` bytes; `page_out(object, offset, data)` stores `data`, and
    returning means that it is durable. An exception of either is what the waiting process is told. Without
    `page_out` the objects cannot be changed for good. Do not touch such an object in this process: NumPy would
    hold the interpreter lock while it waits for you.
    """
    default_host().serve_pager(name, page_in, page_out)
