"""What type checkers say of programs that use the package."""

import pytest

GOOD = """
import pathlib
import commonhold as ch
import numpy as np
array = ch.array(pathlib.PurePosixPath("/lab/x"), (3, -1), "f8", create=True, size=4096, permissions=0o640, ephemeral=2.5)
mean: float = float(array.mean())
ch.zeros(None, 4, sync="atomic", file="x.bin")
with ch.create("/lab/y", 4096, description="<u4", coherence="strict") as opened, opened.map() as mapping:
    head: bytes = mapping[0:5]
    mapping[0] = 7
name: str = ch.name_of(array)
with ch.watch(array[0]) as news:
    woken: bool = news.wait(0.5)
    number: int = news.fileno()
ch.notify(array)
late: bool = ch.wait(array, 1.0)
"""
BAD = """
import commonhold as ch
ch.array("/lab/x", 3, create=True, permisions=0o640)
ch.zeros("/lab/x", 3, sync="atomik")
ch.create("/lab/x", 3, budgt=1)
ch.connect().create("/lab/x", 3, budgt=1)
"""


def check(tmp_path, text):
    api = pytest.importorskip("mypy.api")
    (tmp_path / "program.py").write_text(text)
    cache = ["--cache-dir", str(tmp_path / "cache")]
    out, err, code = api.run([*cache, "--strict", "--no-error-summary", str(tmp_path / "program.py")])
    return out + err, code


def test_a_sound_program_is_sound(tmp_path):
    out, code = check(tmp_path, GOOD)
    assert code == 0, out


def test_a_misspelt_option_is_found(tmp_path):
    out, code = check(tmp_path, BAD)
    assert code == 1
    assert [f"program.py:{line}:" in out for line in (3, 4, 5, 6)] == [True] * 4, out
