"""Other libraries on an object's pages, without a copy: what docs/PYTHON.md shows. What is not installed is left out."""

import asyncio
import pickle

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


def test_zarr(name):
    zarr = pytest.importorskip("zarr")
    from commonhold.zarr import ObjectStore

    store = ObjectStore(name)
    cube = zarr.create_array(store, shape=(20, 30), chunks=(10, 10), dtype="f4", compressors=None, filters=None)
    cube[...] = np.arange(600, dtype="f4").reshape(20, 30)
    cube[3, 4] = -1
    again = zarr.open_array(ObjectStore(name, read_only=True))
    assert again[3, 4] == -1 and again[19, 29] == 599 and again[5:15, 25].tolist() == cube[5:15, 25].tolist()
    assert ch.array(f"{name}/c/1/2", dtype="f4").size == 100, "a chunk is an object, as it is"
    with pytest.raises(ValueError):
        again[0, 0] = 1
    group = zarr.create_group(ObjectStore(name + "-group"))
    group.create_array("a", shape=4, dtype="i8", compressors=zarr.codecs.ZstdCodec())[...] = [1, 2, 3, 4]
    group.attrs["unit"] = "m"
    there = zarr.open_group(pickle.loads(pickle.dumps(ObjectStore(name + "-group"))))
    assert list(there.array_keys()) == ["a"] and there["a"][2] == 3 and there.attrs["unit"] == "m"
    del group["a"]
    assert list(there.array_keys()) == []
    with pytest.raises(ch.InvalidError, match="file"):
        ObjectStore(name, file="x")
    asyncio.run(store.clear())
    asyncio.run(group.store.clear())


def test_a_key_of_zarr_is_replaced_as_a_whole(name):
    pytest.importorskip("zarr")
    from commonhold.zarr import ObjectStore
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import cpu, default_buffer_prototype

    async def steps():
        store, kind = ObjectStore(name), default_buffer_prototype()

        async def keys(prefix=""):
            return sorted([key async for key in store.list_prefix(prefix)])

        assert await store.get("a/b", kind) is None and not await store.exists("a/b") and await store.is_empty("")
        await store.set("a/b", cpu.Buffer.from_bytes(b"0123456789"))
        before = await store.get("a/b", kind)
        await store.set("a/b", cpu.Buffer.from_bytes(b"xyz"))
        assert before.to_bytes() == b"0123456789", "who has it keeps it"
        await store.set_if_not_exists("a/b", cpu.Buffer.from_bytes(b"other"))
        assert (await store.get("a/b", kind)).to_bytes() == b"xyz" and await store.getsize("a/b") == 3
        parts = [RangeByteRequest(1, 2), OffsetByteRequest(1), SuffixByteRequest(2), SuffixByteRequest(9)]
        found = await store.get_partial_values(kind, [("a/b", part) for part in parts])
        assert [part.to_bytes() for part in found] == [b"y", b"yz", b"yz", b"xyz"]
        await store.set("a/none", cpu.Buffer.from_bytes(b""))
        assert (await store.get("a/none", kind)).to_bytes() == b"" and await store.getsize("a/none") == 0
        ch.create(name + "/.new-left", 1).close()
        assert await keys() == ["a/b", "a/none"] and await keys("a/n") == ["a/none"] and not await store.exists("a")
        assert await store.get("a", kind) is None, "a directory is no key"
        with pytest.raises(FileNotFoundError):
            await store.getsize("a")
        assert [entry async for entry in store.list_dir("")] == ["a"]
        await store.delete("a/b")
        await store.delete("a/b")
        await store.clear()
        assert await store.is_empty("") and not ch.exists(name), "what was left is removed, too"

    asyncio.run(steps())
