"""What can go wrong, as exceptions.

Each is an `OSError` with an `errno`, and also the built-in exception that a Python program would expect.
"""

import errno as _errno
import threading as _threading


class Error(OSError):
    """A failure. `kind` is what a program decides by, `str(error)` one line for people: what was asked, what the
    limit is, and what to do."""

    kind: str = "io"
    """One of: invalid, not_found, exists, permission, no_space, quota, too_many, busy, unsupported, mismatch, lost,
    pager, io, corrupt, timed_out, disconnected, version, protocol, owner_died, deadlock, not_owner, broken."""

    def __str__(self) -> str:
        return str(self.strerror) if self.strerror is not None else super().__str__()


class InvalidError(Error, ValueError):
    """An argument is misaligned, empty, out of range or malformed, or the object or mapping was closed."""

    kind = "invalid"


class NotFoundError(Error, FileNotFoundError):
    """No object, directory, pager or mapping of that name or address."""

    kind = "not_found"


class ExistsError(Error, FileExistsError):
    """The name is taken."""

    kind = "exists"


class PermissionDeniedError(Error, PermissionError):
    """The mode bits, or the way the object was opened, do not allow it."""

    kind = "permission"


class MismatchError(Error, TypeError):
    """The object holds another type."""

    kind = "mismatch"


class TimedOutError(Error, TimeoutError):
    """A deadline passed."""

    kind = "timed_out"


class DisconnectedError(Error, ConnectionRefusedError):
    """No host answers."""

    kind = "disconnected"


class OwnerDiedError(Error, RuntimeError):
    """Who had the lock died, and nobody has said since that what it guards is whole: take it by `acquire_and_mend`."""

    kind = "owner_died"


class DeadlockError(Error, RuntimeError):
    """The thread would wait for itself: it has the lock already."""

    kind = "deadlock"


class NotOwnerError(Error, RuntimeError):
    """The thread does not have what it lets go."""

    kind = "not_owner"


class BrokenBarrierError(Error, _threading.BrokenBarrierError):
    """A process that the barrier waits for ended, or somebody gave the round up."""

    kind = "broken"


_CLASSES: dict[str, type[Error]] = {
    each.kind: each
    for each in (
        InvalidError,
        NotFoundError,
        ExistsError,
        PermissionDeniedError,
        MismatchError,
        TimedOutError,
        DisconnectedError,
        OwnerDiedError,
        DeadlockError,
        NotOwnerError,
        BrokenBarrierError,
    )
}


def make(kind: str, number: int, message: str) -> Error:
    """The exception for an error of the native part."""
    error = _CLASSES.get(kind, Error)(number, message)
    error.kind = kind
    return error


def mismatch(message: str) -> Error:
    """The object holds another type."""
    return make("mismatch", _errno.EPROTOTYPE, message)


def invalid(message: str) -> Error:
    """An argument cannot be right."""
    return make("invalid", _errno.EINVAL, message)


def not_found(message: str) -> Error:
    """There is nothing of that name."""
    return make("not_found", _errno.ENOENT, message)


def lost(message: str) -> Error:
    """What was meant is there no more."""
    return make("lost", _errno.ENODEV, message)
