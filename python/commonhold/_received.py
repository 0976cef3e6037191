"""Pages that other processes showed to this one, kept for an instant: who is sent an array again and again maps it once."""

import os
import threading
import time
from weakref import WeakValueDictionary

from ._native import Pages

# State directory, identity of the object, mode.
Key = tuple[str, int, str]

# Pages that nothing shows any more stay mapped for so long, and so many of them: an object that was removed has its memory until then.
_KEPT_S = 2.0
_MOST_KEPT = 8

_known: "WeakValueDictionary[Key, Pages]" = WeakValueDictionary()
_kept: dict[Key, tuple[Pages, float]] = {}
_lock = threading.Lock()
_sweeps = False


def pages_of_place(key: Key, first: int, nbytes: int) -> Pages | None:
    """Pages of this process that show the bytes `first` to `first + nbytes` of that object in that mode."""
    pages = _known.get(key)
    if pages is None or first < pages.offset or first + nbytes > pages.offset + pages.nbytes:
        return None
    return pages


def remember(key: Key, pages: Pages, keep: bool = True) -> None:
    """These show an object: others may be shown it by them. `keep`: also if nothing else needs them, for a while."""
    global _sweeps
    with _lock:
        _known[key] = pages
        if not keep:
            return
        _kept.pop(key, None)
        _kept[key] = (pages, time.monotonic())
        if len(_kept) > _MOST_KEPT:
            del _kept[next(iter(_kept))]
        if _sweeps:
            return
        _sweeps = True
    threading.Thread(target=_sweep, name="commonhold-received", daemon=True).start()


def _sweep() -> None:
    """Lets go of what was kept for long enough; ends with the last."""
    global _sweeps
    while True:
        time.sleep(_KEPT_S / 2)
        with _lock:
            over = time.monotonic() - _KEPT_S
            gone = [_kept.pop(key) for key, (_, since) in list(_kept.items()) if since < over]
            if not _kept:
                _sweeps = False
                break
        del gone  # they are unmapped without the lock
    del gone


def _begin_anew() -> None:
    """In a fork child: which of its parent's mappings it has is not known, and the thread is not there."""
    global _lock, _sweeps
    _lock, _sweeps = threading.Lock(), False
    _known.clear()
    _kept.clear()


os.register_at_fork(after_in_child=_begin_anew)
