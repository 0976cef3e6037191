"""Reads the index, and compares it with one made without Commonhold. Usage: judge.py NAME FILE"""

import os
import sys
from array import array
from concurrent.futures import ProcessPoolExecutor

import commonhold as ch
import numpy as np
from layout import Index, read_document, words_of


def plain_part(first, paths):
    """Postings of some documents, in nothing but this process's memory: words, and arrays of word, document, times."""
    numbers, columns = {}, (array("I"), array("I"), array("I"))
    for document, path in enumerate(paths, first):
        for word, times in words_of(read_document(path)).items():
            for column, value in zip(columns, (numbers.setdefault(word, len(numbers)), document, times)):
                column.append(value)
    return list(numbers), columns


class Postings:
    """An index as three columns in a fixed order, with words as numbers of one dictionary for all."""

    numbers = {}

    def __init__(self):
        self.columns = []

    def add(self, words, slots, documents, times):
        number = np.array([self.numbers.setdefault(word, len(self.numbers)) for word in words], dtype="u4")
        self.columns.append(np.stack([number[slots], documents, times]))

    def ordered(self, below=None):
        all_of_it = np.concatenate(self.columns, axis=1)
        if below is not None:
            all_of_it = all_of_it[:, all_of_it[1] < below]
        return all_of_it[:, np.lexsort(all_of_it[::-1])]


def plain_index(paths):
    postings, size = Postings(), 500
    with ProcessPoolExecutor() as workers:
        starts = range(0, len(paths), size)
        for words, columns in workers.map(plain_part, starts, [paths[at : at + size] for at in starts]):
            postings.add(words, *(np.frombuffer(column, "u4") for column in columns))
    return postings


def add_region(postings, region, keep):
    """Adds what a region says of the documents for which `keep` holds."""
    slots, documents, times = region.all_postings()
    kept = keep(documents)
    used, slots = np.unique(slots[kept], return_inverse=True)
    postings.add([region.word(slot) for slot in used], slots, documents[kept], times[kept])


def main(name, file):
    content = ch.array(name, mode="r")
    index = Index(content)
    of_c, of_python = (region.position()[0] for region in index.regions)
    shared = Postings()
    add_region(shared, index.regions[0], lambda documents: documents < of_c)
    # Where the two met, both may have done a document: it counts once.
    first_of_python = max(of_c, index.documents - of_python)
    add_region(shared, index.regions[1], lambda documents: documents >= first_of_python)

    plain = plain_index(index.paths)
    expected, found = plain.ordered(), shared.ordered()
    print(f"   with Commonhold:    {found.shape[1]} postings of {len(np.unique(found[0]))} words in {index.documents} texts")
    print(f"   without Commonhold: {expected.shape[1]} postings of {len(np.unique(expected[0]))} words")
    good = check("the two are equal", np.array_equal(expected, found))

    stored = np.fromfile(file, "u1")
    good &= check("read() of the file gives the bytes that are mapped", np.array_equal(stored, content))

    # The copy that was made when the C program had just been killed.
    region = Index(np.fromfile(file + ".after-kill", "u1")).regions[0]
    finished = region.position()[0]
    at_kill = Postings()
    add_region(at_kill, region, lambda documents: documents < finished)
    good &= check(f"the stored file, when the C program was killed, held its first {finished} texts, each wholly",
                  finished > 0 and np.array_equal(plain.ordered(finished), at_kill.ordered()))
    for word in (b"memory", b"shared", b"page"):
        documents = np.unique(found[1, found[0] == Postings.numbers.get(word, -1)])
        if len(documents):
            print(f"   `{word.decode()}` is in {len(documents)} texts, first {os.fsdecode(index.paths[documents[0]])}")
    return 0 if good else 1


def check(what, holds):
    print(f"   {'yes' if holds else 'NO '}: {what}", flush=True)
    return bool(holds)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
