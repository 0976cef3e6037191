"""Indexes documents from the last to the first, until it meets the C program. Usage: index.py NAME"""

import sys

import commonhold as ch
import numpy as np
from layout import POSTINGS, SLOTS, WORD_BYTES, Index, hash_of, read_document, words_of

BATCH = 64


class Writer:
    def __init__(self, region):
        self.region = region
        self.finished, self.posting, self.word = region.position()
        # A dictionary of this process's own, so that only a new word has to be looked for in the table.
        self.slots = {region.word(slot): slot for slot in np.flatnonzero(region.word_at)}

    def slot(self, word):
        region, slot = self.region, hash_of(word) % SLOTS
        while region.word_at[slot]:
            slot = (slot + 1) % SLOTS
        end = self.word + 1 + len(word)
        if end > WORD_BYTES or len(self.slots) >= SLOTS - SLOTS // 8:
            raise SystemExit("the region has no room for more words")
        region.words[self.word] = len(word)
        region.words[self.word + 1 : end] = np.frombuffer(word, "u1")
        region.word_at[slot] = self.word
        self.word = end
        self.slots[word] = slot
        return slot

    def add(self, document, words):
        region = self.region
        known = self.slots
        slots = np.array([known[word] if word in known else self.slot(word) for word in words], dtype="u4")
        first, end = self.posting, self.posting + len(slots)
        if end > POSTINGS:
            raise SystemExit("the region has no room for more postings")
        new = region.postings[first:end]
        new[:, 0] = document
        new[:, 1] = np.fromiter(words.values(), "u4", len(slots))
        new[:, 2] = region.head[slots]
        region.head[slots] = np.arange(first, end, dtype="u4")
        self.posting = end
        self.finished += 1

    def commit(self):
        self.region.commit(self.finished, self.posting, self.word)
        ch.sync(self.region.bytes)


def main(name):
    index = Index(ch.array(name))
    theirs, mine = index.regions
    words, postings = mine.recover()
    writer = Writer(mine)
    print(f"   [Python] begins after {writer.finished} documents; takes back {words} words, {postings} postings", flush=True)
    while (document := index.documents - 1 - writer.finished) >= theirs.position()[0]:
        writer.add(document, words_of(read_document(index.paths[document])))
        if writer.finished % BATCH == 0:
            writer.commit()
    writer.commit()
    print(f"   [Python] met the C program; documents {document + 1} to {index.documents - 1} are mine", flush=True)


main(*sys.argv[1:])
