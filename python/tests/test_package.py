"""The package itself: everything public is there, typed and described."""

import ast
import inspect
from pathlib import Path

import commonhold as ch
from commonhold import _native

FOLDER = Path(ch.__file__).parent


def test_all_that_is_public_is_there_and_described():
    for word in ch.__all__:
        thing = getattr(ch, word)
        if inspect.isclass(thing) or callable(thing):
            assert thing.__doc__, word
    for cls in (ch.Object, ch.Mapping, ch.Host):
        for word, thing in vars(cls).items():
            assert word.startswith("_") or thing.__doc__ or word == "pages" or word == "array", f"{cls.__name__}.{word}"
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
