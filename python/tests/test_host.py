"""Names, records and errors; hosts that die; hosts that are found or started."""

import copy
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import commonhold as ch
import numpy as np
import pytest
from commonhold import _program
from conftest import wait_for

PAGE = ch.PAGE_SIZE_BYTES
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(act) -> None:
    """Runs something as another user, in a fork child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_names(name):
    ch.create(name, 5000, permissions=0o640).close()
    stat = ch.stat(name)
    assert isinstance(stat, ch.ObjectStat)
    assert (stat.name, stat.size_bytes, stat.mode, stat.uid) == (name, 5000, 0o640, os.getuid())
    assert (stat.pager, stat.sync, stat.controlled, stat.reserved) == ("anonymous", "plain", False, True)
    assert name in [entry.name for entry in ch.ls("/test")]
    directory = ch.stat("/test")
    assert isinstance(directory, ch.DirectoryStat) and directory.name == "/test"
    ch.chmod(name, 0o600)
    ch.rename(name, name + "-b")
    ch.resize(name + "-b", 6000)
    stat = ch.stat(name + "-b")
    assert (stat.mode, stat.size_bytes) == (0o600, 6000)
    with pytest.raises(FileNotFoundError):
        ch.stat(name)
    array = ch.array(name + "-b")
    assert [(m.pid, m.length_bytes) for m in ch.map_info(name + "-b")] in ([], [(os.getpid(), 8192)])
    ch.remove(name + "-b")
    array[0] = 1


def test_a_name_is_taken_from_another_object(name):
    ch.from_array(name, np.arange(3))
    before = ch.array(name)
    ch.from_array(name + "-new", np.arange(3) + 10)
    with pytest.raises(FileExistsError):
        ch.rename(name + "-new", name)
    ch.rename(name + "-new", name, replace=True)
    assert ch.array(name).tolist() == [10, 11, 12] and before.tolist() == [0, 1, 2], "who has it keeps it"
    assert not ch.exists(name + "-new")
    with pytest.raises(FileNotFoundError):
        ch.rename(name + "-new", name, replace=True)
    assert ch.array(name)[0] == 10


def test_status(host):
    status = ch.status()
    assert isinstance(status, ch.HostStatus) and Path(status.state_directory) == host.state.resolve()
    assert os.path.exists(f"/proc/{status.host_pid}") and status.clients >= 1
    assert ch.connect(host.state).status().host_pid == status.host_pid
    assert pickle.loads(pickle.dumps(ch.connect())).state_directory == host.state


def test_the_memory_of_direct_objects_is_told(name):
    before = ch.status().direct_bytes
    ch.array(name, 1 << 20, "u1", create=True, reserve=True)[:] = 1
    assert ch.status().direct_bytes - before == 1 << 20
    ch.remove(name)
    wait_for(lambda: ch.status().direct_bytes == before)


def test_errors_are_what_python_expects(name):
    ch.create(name, 10).close()
    cases = [
        (lambda: ch.create(name + "x", -1), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.create(name + "x", 2**70), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.create(name, 9, coherence="strict", page_size=5), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.create(name + "x", 8192, page_size=8192), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.create(name + "x"), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.array(name + "x", (3, 0), create=True), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.chmod(name, -1), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.resize(name, -1), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.open(name).map(-4096), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.create(name + "x", file="/nonexistent"), FileNotFoundError, ch.NotFoundError, "not_found", 2),
        (lambda: ch.open(name + "x"), FileNotFoundError, ch.NotFoundError, "not_found", 2),
        (lambda: ch.create(name, 10), FileExistsError, ch.ExistsError, "exists", 17),
        (lambda: ch.open("no-slash"), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.open(name, "w"), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.create(name + "x", 0), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.create(name + "x", 10, permissions=0o7777), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.connect("/nowhere"), ConnectionRefusedError, ch.DisconnectedError, "disconnected", 111),
        (lambda: ch.open("/" + "x" * 2000), ValueError, ch.InvalidError, "invalid", 22),
        (lambda: ch.open("/a/../b"), ValueError, ch.InvalidError, "invalid", 22),
    ]
    for act, builtin, ours, kind, number in cases:
        with pytest.raises(ours) as raised:
            act()
        error = raised.value
        assert isinstance(error, builtin) and isinstance(error, (ch.Error, OSError))
        assert (error.kind, error.errno) == (kind, number)
        assert "\n" not in str(error) and not str(error).startswith("[Errno")
        for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(same), same.kind, same.errno, str(same)) == (ours, kind, number, str(error))
    with pytest.raises(TypeError):
        ch.create(name + "x", 10, file="a", pager="/b")


@as_root
def test_other_users(name):
    ch.array(name, 100, "u4", create=True, permissions=0o604)[:] = 3
    secret = name + "-secret"
    ch.create(secret, 100).close()

    def act():
        array = ch.array(name)
        assert array[5] == 3 and not array.flags.writeable, "read-only where writing is not permitted"
        for refused in (
            lambda: ch.array(name, mode="r+"),
            lambda: ch.open(secret),
            lambda: ch.array(secret),
            lambda: ch.remove(name),
            lambda: ch.chmod(name, 0o777),
        ):
            with pytest.raises(PermissionError) as raised:
                refused()
            assert isinstance(raised.value, ch.PermissionDeniedError)
        with pytest.raises(ValueError):
            array[5] = 1
        copied = ch.array(name, mode="c")
        copied[5] = 1
        assert array[5] == 3

    as_nobody(act)
    ch.remove(secret)


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_killed_host_loses_nothing(own_host, tmp_path):
    host = ch.connect(own_host.state)
    array = host.array("/a", 64 * 1024, "u8", create=True, file=tmp_path / "file", sync="atomic")
    plain = host.array("/b", 1000, "u8", create=True)
    array[::512] = np.arange(128)
    plain[:] = 5
    before = host.status()
    kill(before.host_pid)
    array[1] = 99
    array[65535] = 1
    assert (array[512::512] == np.arange(1, 128)).all() and array[1] == 99
    ch.sync(array)
    assert np.array_equal(np.fromfile(tmp_path / "file", "u8"), array)
    assert host.status().host_pid != before.host_pid
    assert host.array("/b")[7] == 5


@pytest.mark.parametrize("sync", ["ordered", "atomic"])
def test_host_and_keeper_killed_lose_nothing_that_a_client_has(own_host, tmp_path, sync):
    host = ch.connect(own_host.state)
    array = host.array("/a", 64 * 1024, "u8", create=True, file=tmp_path / "file", sync=sync)
    array[::512] = np.arange(128)
    before = host.status()
    kill(before.keeper_pid, before.host_pid)
    array[1] = 99
    # This process starts no hosts (it was told which to use): somebody else starts the next.
    own_host.start()
    array[65535] = 1
    assert (array[512::512] == np.arange(1, 128)).all() and array[1] == 99
    ch.sync(array)
    assert np.array_equal(np.fromfile(tmp_path / "file", "u8"), array)
    assert host.status().host_pid != before.host_pid


@pytest.mark.parametrize("sync", ["plain", "ordered"])
def test_anonymous_memory_that_a_client_has_outlives_host_and_keeper(own_host, sync):
    host = ch.connect(own_host.state)
    array = host.array("/b", 1000, "u8", create=True, sync=sync)
    array[:] = 5
    before = host.status()
    kill(before.keeper_pid, before.host_pid)
    own_host.start()
    assert host.status().host_pid != before.host_pid and (array == 5).all()
    again = host.array("/b")
    again[7] = 8
    assert array[7] == 8


def test_the_default_host_follows_the_environment(own_host, host, monkeypatch):
    first = ch.status().host_pid
    monkeypatch.setenv("COMMONHOLD_HOST", str(own_host.state))
    assert ch.status().host_pid != first
    monkeypatch.setenv("COMMONHOLD_HOST", str(host.state))
    assert ch.status().host_pid == first


def test_the_program_beside_the_interpreter_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("COMMONHOLD_HOST", "somewhere")
    monkeypatch.delenv("COMMONHOLD_PROGRAM", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    (tmp_path / "commonhold").touch(mode=0o644)
    _program.name_program()
    monkeypatch.delenv("COMMONHOLD_HOST")
    _program.name_program()
    assert "COMMONHOLD_PROGRAM" not in os.environ, "what cannot be run is no program"
    (tmp_path / "commonhold").chmod(0o755)
    _program.name_program()
    assert os.environ["COMMONHOLD_PROGRAM"] == str(tmp_path / "commonhold")
    monkeypatch.setenv("COMMONHOLD_PROGRAM", "/mine")
    _program.name_program()
    assert os.environ["COMMONHOLD_PROGRAM"] == "/mine"


@pytest.mark.skipif(os.path.exists("/var/lib/commonhold/host.sock"), reason="a system's host is running here")
@as_root
def test_a_users_first_call_starts_a_host(program, tmp_path_factory, host):
    """As nobody: the embedded default, found beside a pretended interpreter, and stopped again."""
    home = host.directory / "home"
    (home / "bin").mkdir(parents=True)
    shutil.copy(program, home / "bin" / "commonhold")
    os.chown(home, NOBODY, NOBODY)

    def act():
        os.environ.pop("COMMONHOLD_HOST"), os.environ.pop("COMMONHOLD_PROGRAM", None)
        os.environ.update(XDG_STATE_HOME=str(home), HOME=str(home), PATH="/usr/bin:/bin")
        sys.executable = str(home / "bin" / "python")
        started = time.monotonic()
        array = ch.array("/mine", 10, "u4", create=True)
        array[3] = 4
        assert ch.array("/mine")[3] == 4 and time.monotonic() - started < 10
        status = ch.status()
        assert (status.uid, status.state_directory) == (NOBODY, str(home / "commonhold"))
        stop = [home / "bin" / "commonhold", "host", "stop", "--force"]
        assert subprocess.run(stop, env=os.environ | {"COMMONHOLD_HOST": str(home / "commonhold")}).returncode == 0
        wait_for(lambda: not os.path.exists(f"/proc/{status.host_pid}"))

    as_nobody(act)
