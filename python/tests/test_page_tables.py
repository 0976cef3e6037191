"""Objects whose page tables all processes share."""

import os
from collections.abc import Iterator
from pathlib import Path

import commonhold as ch
import pytest

POOL = Path("/proc/sys/vm/nr_hugepages")
FREE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
HUGE = 2 << 20


@pytest.fixture
def huge_pages() -> Iterator[None]:
    """Four huge pages, which are put back."""
    if os.geteuid() != 0:
        pytest.skip("only root makes the pool of huge pages larger")
    before = int(POOL.read_text())
    POOL.write_text(str(before + 4))
    try:
        if int(FREE.read_text()) < 4:
            pytest.skip("the machine has no memory for four huge pages")
        yield
    finally:
        POOL.write_text(str(before))


def test_an_array_whose_page_tables_are_shared(name, huge_pages):
    mine = ch.array(name, (1000, 1000), "u4", create=True, translation="shared-tables")
    assert not mine.any()
    mine[999] = 7
    stat = ch.stat(name)
    assert (stat.size_bytes, stat.translation, stat.page_tables) == (2 * HUGE, "shared-tables", 2)
    again = ch.array(name)
    assert again.shape == (1000, 1000) and (again[999] == 7).all()
    with ch.open(name, "r+") as opened:
        opened.write(b"beyond", 4_000_000)
        assert opened.read(4_000_000, 6) == b"beyond"
    del mine, again
    ch.remove(name)


def test_a_translation_that_is_none(name):
    with pytest.raises(ch.InvalidError, match="shared-tables"):
        ch.create(name, 4096, translation="segmented")
    with pytest.raises(ch.InvalidError, match="leave one of the two out"):
        ch.create(name, 4096, translation="shared-tables", sync="atomic")
