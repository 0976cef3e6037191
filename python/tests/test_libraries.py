"""Other libraries on an object's pages, without a copy: what docs/PYTHON.md shows. What is not installed is left out."""

import commonhold as ch
import numpy as np
import pytest


def test_pandas(name):
    pandas = pytest.importorskip("pandas")
    array = ch.from_array(name, np.arange(12.0).reshape(4, 3))
    frame = pandas.DataFrame(array, columns=["x", "y", "z"], copy=False)
    assert np.shares_memory(frame.to_numpy(), array)
    ch.array(name)[2, 1] = 70  # as another process would
    assert frame.y[2] == 70 and frame.mean().x == 4.5


def test_pyarrow(name):
    pyarrow = pytest.importorskip("pyarrow")
    array = ch.from_array(name, np.arange(1000, dtype="i8"))
    column = pyarrow.Array.from_buffers(pyarrow.int64(), len(array), [None, pyarrow.py_buffer(array)])
    assert column.buffers()[1].address == array.__array_interface__["data"][0]
    assert pyarrow.compute.sum(column).as_py() == 499500
    del array
    assert column[999].as_py() == 999, "the column keeps the pages"


def test_xarray(name):
    xarray = pytest.importorskip("xarray")
    array = ch.zeros(name, (2, 3))
    data = xarray.DataArray(array, dims=["time", "place"])
    assert np.shares_memory(data.values, array)
    data[1, 2] = 5
    assert ch.array(name)[1, 2] == 5 and float(data.sum()) == 5


def test_torch(name):
    torch = pytest.importorskip("torch")
    array = ch.zeros(name, (2, 3), "f4")
    tensor = torch.from_numpy(array)
    tensor += 2
    assert (ch.array(name) == 2).all() and tensor.sum().item() == 12
