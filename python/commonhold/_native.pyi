"""The native part: classes that the package re-exports, and calls by address range."""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, final, overload

from . import _host
from ._records import DirectoryStat, HostStatus, MappingStat, ObjectStat
from ._typing import Array, Buffer, DType, Inherit, Mode, Name, Order, Shape, States

PAGE_SIZE_BYTES: int
VERSION: str

_T = TypeVar("_T")

@final
class Host:
    @property
    def state_directory(self) -> os.PathLike[str]: ...
    def open(self, name: str, mode: str, *, movable: bool = False) -> Object: ...
    def create_nameless(self, size_bytes: int, description: str, controlled: bool, freezable: bool) -> Object: ...
    def create(
        self,
        name: str,
        *,
        size_bytes: int,
        fd: int | None,
        pager: str | None,
        sync: str,
        permissions: int,
        description: str,
        controlled: bool,
        freezable: bool,
        reserve: bool | None,
        on_last_death: str,
        budget_bytes: int | None,
        fault_deadline_ms: int | None,
        pager_deadline_ms: int | None,
        coherence: str,
        on_loss: str,
        scheduler: str | None,
        page_size_bytes: int | None,
        replicas: int,
        home_moves: bool,
        translation: str,
        fixed: bool,
        room_bytes: int | None,
        ephemeral_ms: int | None,
    ) -> Object: ...
    def stat(self, name: str) -> ObjectStat | DirectoryStat: ...
    def ls(self, directory: str) -> list[ObjectStat | DirectoryStat]: ...
    def resize(self, name: str, size_bytes: int) -> None: ...
    def tag(self, name: str, offset: int, length: int | None, tag: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def rename(self, old: str, new: str, replace: bool) -> None: ...
    def chmod(self, name: str, mode: int) -> None: ...
    def chown(self, name: str, uid: int | None, gid: int | None) -> None: ...
    def revert(self, name: str) -> int: ...
    def map_info(self, name: str) -> list[MappingStat]: ...
    def status(self) -> HostStatus: ...
    def kernel_faults(self) -> bool: ...

@final
class Channel:
    @staticmethod
    def open(host: Host, name: str) -> Channel: ...
    @staticmethod
    def create(host: Host, name: str, capacity_bytes: int, translation: str, permissions: int) -> Channel: ...
    @property
    def closed(self) -> bool: ...
    @property
    def most_bytes(self) -> int: ...
    def send(self, kind: int, data: Buffer, timeout: float | None) -> None: ...
    def receive(self, timeout: float | None) -> tuple[int, bytes, int, int, Object | None]: ...
    def post(self, of: Object | Pages, offset: int, length: int) -> int: ...
    def withdraw(self, landing: int) -> None: ...
    def withdraw_all(self) -> int: ...
    def send_region(self, kind: int, data: Buffer, region: Buffer, timeout: float | None) -> None: ...
    def send_object(
        self, kind: int, data: Buffer, object: Object | Pages, writable: bool, timeout: float | None
    ) -> None: ...
    def send_by_reference(
        self, kind: int, data: Buffer, of: Object | Pages, offset: int, length: int, timeout: float | None
    ) -> None: ...
    def close(self) -> None: ...

@final
class Heap:
    @staticmethod
    def open(host: Host, name: str) -> Heap: ...
    @staticmethod
    def create(host: Host, name: str, size_bytes: int, mode: int, if_missing: bool) -> Heap: ...
    def close(self) -> None: ...
    def allocate(self, of: str, count: int) -> int: ...
    def allocate_into(self, of: str, count: int, word: int) -> int: ...
    def free(self, offset: int) -> None: ...
    def free_from(self, word: int) -> None: ...
    def root(self, name: str) -> int: ...
    def load(self, word: int) -> int: ...
    def store(self, word: int, value: int) -> None: ...
    def offset(self, address: int) -> int: ...
    def memory(self, offset: int, nbytes: int) -> HeapMemory: ...
    def check(self) -> tuple[int, int, list[tuple[int, str]]]: ...

@final
class HeapMemory:
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Object:
    """An open object. Its mappings and arrays outlive it."""

    @property
    def name(self) -> str:
        """As it was opened: it may have another by now (see `stat`)."""

    @property
    def mode(self) -> Mode: ...
    @property
    def closed(self) -> bool: ...
    @property
    def id(self) -> int:
        """Its number at this host."""

    @property
    def uuid(self) -> int:
        """What no other object has, of any host."""

    @property
    def size_bytes(self) -> int:
        """As known since it was opened, or asked for by `stat`."""

    def size_by_now(self) -> int:
        """Size by now, to the page: the host is asked only if another process changed the number of pages."""

    @property
    def controlled(self) -> bool:
        """Whether the host serves its faults."""

    @property
    def description(self) -> str:
        """Data type of its elements; empty: bytes."""

    @property
    def state_directory(self) -> os.PathLike[str]:
        """Of its host."""

    def stat(self) -> ObjectStat:
        """All there is to know of it now."""

    def map(
        self,
        offset: int = 0,
        length: int | None = None,
        mode: Mode | None = None,
        *,
        address: int = 0,
        fixed: bool = False,
        lock: bool = False,
        prefetch: bool = False,
        in_thread: bool = False,
        inherit: Inherit = "share",
        anywhere: bool = False,
    ) -> Mapping:
        """Maps `length` bytes from `offset` (page-aligned) on; all unless given.

        `mode` is that of the object unless given; `c` is copy-on-write. `address` is a hint, or with `fixed` the
        only place. `lock`: hold each page as it comes in (it keeps nobody out). `prefetch`: begin to bring all in.
        `in_thread`: the faulting thread serves itself where it can. `inherit`: what a fork child has of it: the object (`share`), a
        copy of its bytes as they are at fork (`copy`), or nothing (`none`). `anywhere`: an object that was created
        `fixed` is not mapped at its address; its pointers are of no use then.
        """

    def array(
        self,
        dtype: DType = None,
        shape: Shape | None = None,
        *,
        mode: Mode | None = None,
        offset: int = 0,
        order: Order | None = None,
        lock: bool = False,
        prefetch: bool = False,
        in_thread: bool = False,
        inherit: Inherit = "share",
    ) -> Array:
        """A NumPy array on it, with the dtype and shape it was created with unless given (see `commonhold.array`).
        The object may be closed while the array is in use."""

    def guard(self) -> Guard:
        """A guard of an object that was opened movable: until it is released, the object lies where it does."""

    def pages(
        self,
        offset: int,
        length: int,
        mode: Mode | None = None,
        *,
        lock: bool = False,
        prefetch: bool = False,
        in_thread: bool = False,
        inherit: Inherit = "share",
    ) -> Pages: ...
    def sync(self, offset: int = 0, length: int | None = None, *, freeze: bool = False) -> int:
        """Makes the range what is stored, by the mode chosen at creation; gives the number of pages written, 0 of a
        direct object."""

    def lock(self, offset: int = 0, length: int | None = None) -> bool:
        """Holds the pages in memory and away from the pager, and keeps nobody out (`Mutex` does); gives whether they are pinned
        against swap too."""

    def unlock(self, offset: int = 0, length: int | None = None) -> None:
        """Lets them go."""

    def prefetch(self, offset: int = 0, length: int | None = None) -> None:
        """Begins to bring the pages in, without waiting."""

    def incore(self, offset: int = 0, length: int | None = None) -> States:
        """State of each page: a `PageState`, plus `LOCKED`."""

    def revert(self) -> int:
        """Drops what was not synced; gives the number of pages dropped."""

    def snapshot(
        self,
        name: str,
        offset: int = 0,
        length: int | None = None,
        *,
        writable: bool = False,
        whole: bool = False,
        permissions: int = 0o600,
        file: str | os.PathLike[str] | None = None,
    ) -> Object:
        """Creates an object that has this one's pages as they are at one instant, and opens it.

        It takes no memory at first: a page is copied when it is written here, or touched there, for the first time.
        `writable`: it may be written; this object does not see that. `whole`: all pages are copied soon. This object
        is `freezable` and open with mode "r+", or it is a snapshot itself.

        `file`: of a direct object on a file of XFS, Btrfs or bcachefs. The path, where nothing is yet, becomes a clone
        of the object's file, and the snapshot is on it.
        """

    def resize(self, size_bytes: int) -> None:
        """Changes its size. Touching a mapping past a smaller size raises SIGBUS."""

    def tag_pages(self, tag: str, offset: int = 0, length: int | None = None) -> None:
        """Says what is in whole pages of it, in words: `int32`, `{24: 0 int32, 8 float64*2}`. `commonhold.tag` takes dtypes."""

    def tags(self) -> list[tuple[int, int, str]]:
        """What is in its pages: first byte, bytes and tag of each run that has one."""

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Copies bytes out."""

    def write(self, data: Buffer, offset: int = 0) -> None:
        """Copies bytes in."""

    def _read_into(self, fd: int, file_offset: int, offset: int, length: int) -> tuple[int, int]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Mapping:
    """A part of an object in this process's memory: give it to `memoryview`, `numpy.frombuffer` and the like."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def offset(self) -> int:
        """Of its first byte in the object."""

    @property
    def mode(self) -> Mode: ...
    @property
    def closed(self) -> bool: ...
    @property
    def pages(self) -> Pages: ...
    def sync(self, offset: int = 0, length: int | None = None, *, freeze: bool = False) -> int:
        """Makes the pages that hold the range what is stored; gives the number of pages written."""

    def lock(self, offset: int = 0, length: int | None = None) -> bool:
        """Holds the pages in memory and away from the pager, and keeps nobody out (`Mutex` does)."""

    def unlock(self, offset: int = 0, length: int | None = None) -> None: ...
    def prefetch(self, offset: int = 0, length: int | None = None) -> None: ...
    def watch(self, offset: int = 0, length: int | None = None) -> Watch:
        """Watches bytes of it (all unless given), not pages."""

    def wait(self, offset: int = 0, length: int | None = None, timeout: float | None = None) -> bool:
        """Waits until somebody notifies of these bytes, or another host's sync changes them; false if that does not happen
        in so many seconds. What came before the call it does not know: who looks at the data first makes a `watch` before
        that."""

    def notify(self, offset: int = 0, length: int | None = None) -> None:
        """Wakes all who watch any of these bytes (all unless given), in whatever process on whatever host."""

    def inherit(self, how: Inherit, offset: int = 0, length: int | None = None) -> None:
        """From now on a fork child has that of it: the object (`share`), a copy (`copy`), or nothing (`none`)."""

    def incore(self, offset: int = 0, length: int | None = None) -> States: ...
    def close(self) -> None:
        """Gives it up. Arrays and buffers made of it go on: the pages are unmapped when the last is gone."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> bytes: ...
    @overload
    def __setitem__(self, index: int, value: int) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Buffer) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Watch:
    """What waits for a change of bytes of an object: of one that came since it was made, or since its last wait returned.

    Make it, look at the data, and wait only if that is not yet as it should be. It may also be woken where nobody notified:
    when another host process serves, a host of the cluster is lost, or the object's home is found again."""

    @property
    def closed(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is woken; false if that does not happen in so many seconds."""

    def fileno(self) -> int:
        """A descriptor for `select`, `selectors` and `asyncio`, readable when `wait` would return at once. It is the watch's:
        do not read or close it."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Guard:
    """Until it is released the object lies where it does. A buffer, and a context manager."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def generation(self) -> int:
        """Another number than that of the guard before: the object may lie elsewhere, or have another size."""

    def release(self) -> None:
        """Gives it up. `BufferError` while somebody has a buffer of it."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Pages:
    """Mapped pages: what an array on an object has as its base. They are unmapped when nothing shows them."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def state_directory(self) -> os.PathLike[str]: ...
    @property
    def uuid(self) -> int: ...
    @property
    def directory(self) -> str:
        """State directory of the host."""

    def recent_name(self) -> str:
        """The name that it has, or had a second ago."""

    def object_name(self) -> str: ...
    def revert(self) -> int: ...
    def tag(self, tag: str, offset: int, length: int) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Mutex:
    """A mutex with a name: one thread has it, of all processes that have it open.

    `Mutex(name)` opens it, and creates it if there is none: not with `create=False`, always with
    `create="new"`. `mode`: mode bits; whoever uses it needs reading and writing. `count`: how many
    mutexes the object holds, up to 65,536; `mutex[3]` is the fourth. A `with` block takes it and
    lets it go; it does not close it.

    It belongs to the thread that took it. A fork child may use it, and does not have what its
    parent has. To another process it is pickled by its name.
    """

    def __new__(
        cls,
        name: Name,
        create: bool | Literal["new"] = True,
        *,
        mode: int = 0o600,
        count: int = 1,
        hosts: bool = False,
        host: _host.Host | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """As it was opened."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    @property
    def _uuid(self) -> int: ...
    def close(self) -> None:
        """Gives it up; the object stays. Let it go before: others would find that its owner
        died."""

    def __len__(self) -> int:
        """How many the object holds."""

    def __getitem__(self, index: int) -> Self:
        """Another one of the object."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    def acquire(self, timeout: float | None = None) -> bool:
        """Takes it for this thread; gives whether it was free within so many seconds (None: waits
        for ever, 0: not at all).

        Raises `OwnerDiedError` if who had it died: it is not taken then. `DeadlockError`: this
        thread has it already."""

    def acquire_and_mend(self, timeout: float | None = None) -> bool:
        """Takes it for this thread, also after its owner died; gives whether he did: then mend what
        it guards before you let it go. `TimedOutError`: it was not free in time."""

    def release(self) -> None:
        """Lets it go. `NotOwnerError`: this thread does not have it."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class RwLock:
    """A lock with a name that one thread has to write, or several have to read.

    It is opened as a `Mutex` is. `with lock.read():` and `with lock.write():` take it and let it
    go. Who waits to write goes before readers that come later: so do not
    read within reading. Sixty processes may read at once. In a program's main thread, a wait to
    write lets other readers go first at least once a second, so that Python hears of Ctrl-C: within
    a second.
    """

    def __new__(
        cls,
        name: Name,
        create: bool | Literal["new"] = True,
        *,
        mode: int = 0o600,
        count: int = 1,
        hosts: bool = False,
        host: _host.Host | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """As it was opened."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    @property
    def _uuid(self) -> int: ...
    def close(self) -> None:
        """Gives it up; the object stays. Let it go before: others would find that its owner
        died."""

    def __len__(self) -> int:
        """How many the object holds."""

    def __getitem__(self, index: int) -> Self:
        """Another one of the object."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    def read(self, timeout: float | None = None) -> Holding:
        """Holds it to read within a `with` block, which raises `TimedOutError` if that takes more
        than so many seconds, and `OwnerDiedError` if a writer died."""

    def write(self, timeout: float | None = None) -> Holding:
        """Holds it to write within a `with` block. Raises as `read` does."""

    def write_and_mend(self, timeout: float | None = None) -> Holding:
        """Holds it to write within a `with` block, also after its writer died, and gives
        whether he did: then mend what it guards before the block ends."""

@final
class Holding:
    """What `RwLock.read` and its like give: a `with` block takes the lock and lets it go."""

    def __enter__(self) -> bool | None: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Condition:
    """A condition with a name: threads wait until another signals. What they wait for is the
    program's, and guarded by a `Mutex`, which `with condition:` takes.

    It is opened as a `Mutex` is. Whoever waits opens it with the same mutex.
    """

    def __new__(
        cls,
        name: Name,
        mutex: Mutex,
        create: bool | Literal["new"] = True,
        *,
        mode: int = 0o600,
        count: int = 1,
        hosts: bool = False,
        host: _host.Host | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """As it was opened."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    @property
    def _uuid(self) -> int: ...
    def close(self) -> None:
        """Gives it up; the object stays."""

    def __len__(self) -> int:
        """How many the object holds."""

    def __getitem__(self, index: int) -> Self:
        """Another one of the object."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    @property
    def mutex(self) -> Mutex:
        """What guards that which is waited for."""

    def acquire(self, timeout: float | None = None) -> bool:
        """Takes its mutex."""

    def release(self) -> None:
        """Lets its mutex go."""

    def wait(self, timeout: float | None = None) -> bool:
        """Lets the mutex go, waits for a signal, and takes the mutex again, however long that
        takes; False: so many seconds were over. It may also return True without a signal: so look
        again at what you wait for, or use `wait_for`.

        This thread has the mutex afterwards, also after an exception: of Ctrl-C, and after
        `OwnerDiedError`, which says that the mutex's owner died meanwhile: let it go, and take it
        by `acquire_and_mend`. `NotOwnerError`: it never had it."""

    def wait_for(self, predicate: Callable[[], _T], timeout: float | None = None) -> _T:
        """Waits until a function gives something true, or so many seconds are over; gives what it
        gave last."""

    def notify(self, n: int = 1) -> None:
        """Wakes so many of those who wait, or more. What they wait for was changed by who had the
        mutex; to signal takes no mutex."""

    def notify_all(self) -> None:
        """Wakes all who wait."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Semaphore:
    """A semaphore with a name: a number that is never below zero. A `with` block takes one and
    gives it back.

    It is opened as a `Mutex` is. `value` is the first value, of up to 2**31 - 1, if it is created.
    It belongs to nobody: what a process took that ended is not given back.
    """

    def __new__(
        cls,
        name: Name,
        value: int = 1,
        create: bool | Literal["new"] = True,
        *,
        mode: int = 0o600,
        count: int = 1,
        hosts: bool = False,
        host: _host.Host | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """As it was opened."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    @property
    def _uuid(self) -> int: ...
    def close(self) -> None:
        """Gives it up; the object stays."""

    def __len__(self) -> int:
        """How many the object holds."""

    def __getitem__(self, index: int) -> Self:
        """Another one of the object."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    @property
    def value(self) -> int:
        """Its value just now."""

    def acquire(self, timeout: float | None = None) -> bool:
        """Takes one from its value; gives whether it was above zero within so many seconds (None:
        waits for ever, 0: not at all)."""

    def release(self, n: int = 1) -> None:
        """Adds to its value, and wakes as many."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Barrier:
    """A barrier with a name: threads wait in it until so many (`parties`) are there.

    It is opened as a `Mutex` is; one of other parties is `MismatchError`. The host knows the
    processes that ever waited in it, sixty at most. When one of them ends, those who wait get
    `BrokenBarrierError` at once, and who comes later gets it after a minute, unless a newcomer
    makes up for it.
    """

    def __new__(
        cls,
        name: Name,
        parties: int | None = None,
        create: bool | Literal["new"] = True,
        *,
        mode: int = 0o600,
        count: int = 1,
        hosts: bool = False,
        host: _host.Host | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """As it was opened."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    @property
    def _uuid(self) -> int: ...
    def close(self) -> None:
        """Gives it up; the object stays."""

    def __len__(self) -> int:
        """How many the object holds."""

    def __getitem__(self, index: int) -> Self:
        """Another one of the object."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    @property
    def parties(self) -> int:
        """How many it waits for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all are there; gives whether this thread came last, as one of each round
        does. After `TimedOutError` this thread was not there. A wait that Ctrl-C ends gives the
        round up, as `abort` does."""

    def abort(self) -> None:
        """Gives the round up, if somebody waits in it: they get `BrokenBarrierError`."""

@final
class Counter:
    """A counter with a name: a number of 64 bits that begins with 0, and which any number of
    threads change at once.

    It is opened as a `Mutex` is.
    """

    def __new__(
        cls,
        name: Name,
        create: bool | Literal["new"] = True,
        *,
        mode: int = 0o600,
        count: int = 1,
        hosts: bool = False,
        host: _host.Host | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """As it was opened."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    @property
    def _uuid(self) -> int: ...
    def close(self) -> None:
        """Gives it up; the object stays."""

    def __len__(self) -> int:
        """How many the object holds."""

    def __getitem__(self, index: int) -> Self:
        """Another one of the object."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    @property
    def value(self) -> int:
        """Its value just now."""

    def add(self, n: int = 1) -> int:
        """Adds, modulo 2**64; gives what it was: a ticket that nobody else gets."""

    def compare_exchange(self, old: int, new: int) -> bool:
        """Makes it `new` if it is `old`; gives whether it was."""

    def wait_while(self, value: int, timeout: float | None = None) -> int:
        """Waits until it is another than `value`; gives what it is. `TimedOutError`: it stayed so
        for so many seconds."""

def connect(state_directory: str | os.PathLike[str]) -> Host: ...
def default_host() -> Host: ...
def sync(target: Buffer | Mapping | Object, *, freeze: bool = False) -> int:
    """Makes the pages of an array, mapping or object what is stored; gives the number of pages written, 0 of a direct object.

    What is stored then is by the object's sync mode: of `atomic`, all of it or none of it. `freeze`: at a true
    instant (objects created `freezable`). Raises `Error` with `kind` `no_space` if the disk is full: everything stays
    in memory, and it can be tried again; with `kind` `lost`, once, if newest versions of pages were lost with a host
    since the object was opened; `NotFoundError` if the memory is no object's."""

def lock(target: Buffer | Mapping | Object) -> bool:
    """Holds the pages in memory and away from the pager, until a sync of them or `unlock`; gives whether they are
    pinned against swap too. It keeps nobody out: `Mutex` does. Raises `Error` with `kind` `unsupported` for a direct object."""

def unlock(target: Buffer | Mapping | Object) -> None:
    """Lets them go."""

def prefetch(target: Buffer | Mapping | Object) -> None:
    """Begins to bring the pages in, without waiting."""

def watch(target: Buffer | Mapping | Object) -> Watch:
    """Watches the bytes of an array, mapping or object. Plain stores wake nobody: `notify` does."""

def wait(target: Buffer | Mapping | Object, timeout: float | None = None) -> bool:
    """Waits until somebody notifies of bytes of it, or another host's sync changes them; false if that does not happen in so
    many seconds. What came before the call it does not know: who looks at the data first makes a `watch` before that."""

def notify(target: Buffer | Mapping | Object) -> None:
    """Wakes all who watch any of its bytes, in whatever process on whatever host. Only for who may write the object."""

def inherit(target: Buffer | Mapping, how: Inherit) -> None:
    """From now on a fork child has that of the pages of an array or mapping: the object (`share`), a copy of its bytes
    as they are at fork (`copy`), or nothing (`none`)."""

def incore(target: Buffer | Mapping | Object) -> States:
    """State of each page that holds part of an array, mapping or object: a `PageState`, plus `LOCKED`."""

def address_range(buffer: Buffer) -> tuple[int, int]: ...
def serve_pager(host: Host, name: str, page_in: Any, page_out: Any) -> None: ...
def stop_pagers() -> None: ...

_Row = tuple[str, str, int, int, int, list[tuple[str, int, int, int]]]

@final
class Image:
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def build_id(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def roots(self) -> list[str]: ...
    def find(self, name: str, rows: list[_Row]) -> tuple[int, int]: ...

@final
class Arena:
    def __new__(
        cls,
        name: str,
        store: os.PathLike[str] | None,
        group: str | None,
        capacity_bytes: int | None,
        imports: list[Image],
    ) -> Self: ...
    def take(self, bytes: int, alignment: int) -> int: ...
    def root(self, name: str, first: int, count: int, rows: list[_Row]) -> None: ...
    def seal(self) -> tuple[str, os.PathLike[str]]: ...
    def close(self) -> None: ...

def include_image(name: str, store: os.PathLike[str] | None, newest: bool) -> Image: ...
