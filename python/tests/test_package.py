"""The package itself: everything public is there, typed and described."""

import ast
import inspect
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import commonhold as ch
from commonhold import _native

FOLDER = Path(ch.__file__).parent


def test_all_that_is_public_is_there_and_described():
    for word in ch.__all__:
        thing = getattr(ch, word)
        if inspect.isclass(thing) or callable(thing):
            assert thing.__doc__, word
    assert (FOLDER / "py.typed").exists()
    assert _native.__file__.endswith(".abi3.so")


def test_the_stub_names_what_is_there():
    stub = ast.parse((FOLDER / "_native.pyi").read_text())
    for node in stub.body:
        match node:
            case ast.FunctionDef():
                assert callable(getattr(_native, node.name))
            case ast.ClassDef():
                cls = getattr(_native, node.name)
                named = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                there = {each for each in vars(cls) if not each.startswith("_")}
                assert named - {"__buffer__"} >= there and all(hasattr(cls, each) for each in named - {"__buffer__"})


def test_attaching_is_not_slow(name):
    """A rough check; the exact one is the benchmark row local.python_attach_ratio."""
    with ch.create(name, 1 << 20) as opened:
        opened.write(b"\1")
    segment = SharedMemory(create=True, size=1 << 20)

    def ours():
        with ch.open(name, "r+") as opened:
            array = opened.array("u1")
            array[1] = array[0]

    def theirs():
        attached = SharedMemory(name=segment.name)
        attached.buf[1] = attached.buf[0]
        attached.close()

    def seconds(act):
        start = time.perf_counter()
        for _ in range(50):
            act()
        return time.perf_counter() - start

    try:
        pairs = [(seconds(ours), seconds(theirs)) for _ in range(11)]
        ratio = sorted(a / b for a, b in pairs)[5]
        assert ratio < 10, f"attaching takes {ratio:.1f} times as long as multiprocessing.shared_memory"
    finally:
        segment.close()
        segment.unlink()
