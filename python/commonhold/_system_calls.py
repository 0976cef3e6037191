"""Says once that system calls cannot bring pages in, where that is so."""

import os
import warnings

from . import _native

_asked: set[str] = set()


def warn_of_system_calls(state_directory: str | os.PathLike[str]) -> None:
    """Warns, once for each host, if the kernel's own accesses to pages that are not in memory fail."""
    where = os.fspath(state_directory)
    if where in _asked:
        return
    _asked.add(where)
    if not _native.connect(where).kernel_faults():
        warnings.warn(
            "file.readinto(array) and other system calls fail with EFAULT where they meet a page of the array that is not in "
            "memory, because this host has no right to serve the kernel's accesses: copy through bytes, or touch the pages "
            "first; or let it, as root: `sysctl vm.unprivileged_userfaultfd=1` (`commonhold doctor` says more)",
            RuntimeWarning,
            stacklevel=4,
        )
