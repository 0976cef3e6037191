"""Named memory objects, shared with other programs and durable when asked.

    import commonhold as ch
    counts = ch.array("/lab/counts", dtype="u4")     # a NumPy array; another program may hold the same pages
    counts[7] += 1
    ch.sync(counts)                                  # on disk, all of it or none of it

An array keeps its pages mapped: it may be used after its object was closed or removed, and they are unmapped when
the last array, buffer and mapping that shows them is gone.

A touch of a page that must be brought in first waits for it inside NumPy, which holds the interpreter lock: other
threads of this interpreter wait too. `prefetch` brings pages in without that. So a pager written in Python must
not serve objects that its own process touches.
"""

import atexit as _atexit

from . import _program  # for the native part: not first when a program connects
from ._platform import check as _check

_check()  # before the native part is loaded: elsewhere it cannot be

from ._arrays import LOCKED, PageState, array, from_array, zeros
from ._channel import Channel, Message, read_into
from ._dask import register_if_used as _register_with_dask
from ._errors import (
    BrokenBarrierError,
    DeadlockError,
    DisconnectedError,
    Error,
    ExistsError,
    InvalidError,
    MismatchError,
    NotFoundError,
    NotOwnerError,
    OwnerDiedError,
    PermissionDeniedError,
    TimedOutError,
)
from ._handles import ArrayHandle, handle, name_of, revert, tag
from ._heap import Heap
from ._host import (
    Host,
    chmod,
    chown,
    connect,
    create,
    create_nameless,
    exists,
    ls,
    map_info,
    open,
    remove,
    rename,
    resize,
    serve_pager,
    stat,
    status,
)
from ._locks import locked
from ._native import (
    PAGE_SIZE_BYTES,
    Barrier,
    Condition,
    Counter,
    Mapping,
    Mutex,
    Object,
    RwLock,
    Semaphore,
    Watch,
    incore,
    inherit,
    lock,
    notify,
    prefetch,
    stop_pagers,
    sync,
    unlock,
    wait,
    watch,
)
from ._native import VERSION as __version__
from ._records import DirectoryStat, HostStatus, MappingStat, ObjectStat
from ._shared_array import SharedArray

_atexit.register(stop_pagers)
_register_with_dask()

__all__ = [
    "LOCKED",
    "PAGE_SIZE_BYTES",
    "ArrayHandle",
    "Barrier",
    "BrokenBarrierError",
    "Channel",
    "Condition",
    "Counter",
    "DeadlockError",
    "DirectoryStat",
    "DisconnectedError",
    "Error",
    "ExistsError",
    "Heap",
    "Host",
    "HostStatus",
    "InvalidError",
    "Mapping",
    "MappingStat",
    "Message",
    "MismatchError",
    "Mutex",
    "NotFoundError",
    "NotOwnerError",
    "Object",
    "ObjectStat",
    "OwnerDiedError",
    "PageState",
    "PermissionDeniedError",
    "RwLock",
    "Semaphore",
    "SharedArray",
    "TimedOutError",
    "Watch",
    "array",
    "chmod",
    "chown",
    "connect",
    "create",
    "create_nameless",
    "exists",
    "from_array",
    "handle",
    "incore",
    "inherit",
    "lock",
    "locked",
    "ls",
    "map_info",
    "name_of",
    "notify",
    "open",
    "prefetch",
    "read_into",
    "remove",
    "rename",
    "resize",
    "revert",
    "serve_pager",
    "stat",
    "status",
    "sync",
    "tag",
    "unlock",
    "wait",
    "watch",
    "zeros",
]
