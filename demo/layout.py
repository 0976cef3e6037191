"""Where things lie in the demo's object: the Python side of what index.c says in C.

    page 0      eleven numbers of 8 bytes: MAGIC, documents, and where the parts below begin and how large they are
    paths       the documents' paths, one a line: written once by prepare.py
    region 0    what the C program wrote: documents 0, 1, 2, ... from the front
    region 1    what the Python program wrote: documents n-1, n-2, ... from the back

A region is an inverted index of its own, and only one program writes it:

    position    one page. number[0] counts commits; the newest is number[8 + 8 * (commits & 1)] and the next two:
                documents finished, next free posting, next free byte of `words`
    word_at     open-addressing hash table by FNV-1a, linear probing: where the word is in `words`; 0: free
    head        for each slot the newest posting of the word; 0: none
    words       a byte of length, then the letters; begins at 1
    postings    three numbers of 4 bytes: document, times the word is in it, the next older posting; begins at 1

A commit makes a batch of documents count: the position is written last, then the region is synced. A program that was
killed begins again at the position and takes back what lies past it (`recover`). A machine that stopped finds in the
stored file what one sync left: position and index together, because sync is atomic.
"""

import re
from collections import Counter

import numpy as np

PAGE = 4096
MAGIC = 0x3158_4544_4E49_4843  # "CHINDEX1"
SLOTS = 1 << 19
WORD_BYTES = 8 << 20
POSTINGS = 4 << 20
DOCUMENT_BYTES = 1 << 20
SHORTEST, LONGEST = 3, 24

REGION_BYTES = PAGE + SLOTS * 8 + WORD_BYTES + POSTINGS * 12
LETTERS = re.compile(rb"[a-z]+")


def words_of(text):
    """The words of a document, each with how often it is in it: runs of 3 to 24 ASCII letters, in lower case."""
    found = Counter(LETTERS.findall(text.lower()))
    return {word: times for word, times in found.items() if SHORTEST <= len(word) <= LONGEST}


def read_document(path):
    with open(path, "rb") as file:
        return file.read(DOCUMENT_BYTES)


def hash_of(word):
    value = 2166136261
    for byte in word:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


class Index:
    """The whole object, from an array of its bytes."""

    def __init__(self, content):
        self.header = content[:PAGE].view("u8")
        if self.header[0] != MAGIC:
            raise SystemExit("this object is no index of the demo")
        self.documents, paths, length, first, second, _region = (int(n) for n in self.header[1:7])
        self.paths = bytes(content[paths : paths + length]).split(b"\n")[: self.documents]
        self.regions = [Region(content[at : at + REGION_BYTES]) for at in (first, second)]


class Region:
    """One program's part."""

    def __init__(self, content):
        self.bytes = content
        self.numbers = content[:PAGE].view("u8")
        at = PAGE
        self.word_at = content[at : at + SLOTS * 4].view("u4")
        at += SLOTS * 4
        self.head = content[at : at + SLOTS * 4].view("u4")
        at += SLOTS * 4
        self.words = content[at : at + WORD_BYTES]
        at += WORD_BYTES
        self.postings = content[at : at + POSTINGS * 12].view("u4").reshape(POSTINGS, 3)

    def position(self):
        """Documents finished, next free posting, next free byte of words."""
        at = 8 + 8 * (int(self.numbers[0]) & 1)
        finished, posting, word = (int(n) for n in self.numbers[at : at + 3])
        return finished, max(posting, 1), max(word, 1)

    def commit(self, finished, posting, word):
        at = 8 + 8 * (int(self.numbers[0]) + 1 & 1)
        self.numbers[at : at + 3] = finished, posting, word
        self.numbers[0] += 1

    def recover(self):
        """Takes back what was begun after the last commit; gives how many words and postings that were."""
        _, posting, word = self.position()
        begun = np.flatnonzero(self.word_at >= word)
        self.word_at[begun] = 0
        self.head[begun] = 0
        undone = 0
        while len(late := np.flatnonzero(self.head >= posting)):
            self.head[late] = self.postings[self.head[late], 2]
            undone += len(late)
        return len(begun), undone

    def word(self, slot):
        at = int(self.word_at[slot])
        return self.words[at + 1 : at + 1 + int(self.words[at])].tobytes()

    def all_postings(self):
        """Follows every chain: arrays of slots, documents and times."""
        _, posting, word = self.position()
        slots = np.flatnonzero((self.word_at != 0) & (self.word_at < word)).astype("u4")
        at = self.head[slots]
        found = []
        while len(slots):
            more = at != 0
            slots, at = slots[more], at[more]
            entries = self.postings[at]
            inside = at < posting
            found.append((slots[inside], entries[inside, 0], entries[inside, 1]))
            at = entries[:, 2]
        return tuple(np.concatenate(column) for column in zip(*found)) if found else (np.empty(0, "u4"),) * 3
