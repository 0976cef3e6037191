"""Updates ten rows of 4,000 bytes in one durable transaction of SQLite, again and again; says the mean of a transaction."""

import random
import sqlite3
import sys
import time

path, rows = sys.argv[1], int(sys.argv[2])
store = sqlite3.connect(path, isolation_level=None)
store.execute("PRAGMA journal_mode=WAL")
store.execute("PRAGMA synchronous=FULL")
store.execute("CREATE TABLE pages (number INTEGER PRIMARY KEY, content BLOB)")
store.execute("BEGIN")
store.executemany("INSERT INTO pages VALUES (?, ?)", ((row, bytes(4000)) for row in range(rows)))
store.execute("COMMIT")
store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
mode = store.execute("PRAGMA journal_mode").fetchone()[0], store.execute("PRAGMA synchronous").fetchone()[0]
if mode != ("wal", 2):
    raise SystemExit(f"SQLite has {mode}")
draw = random.Random(7)
print("ready", flush=True)
for line in sys.stdin:
    rounds, content = int(line), draw.randbytes(4000)
    start = time.perf_counter()
    for _ in range(rounds):
        store.execute("BEGIN IMMEDIATE")
        for row in draw.sample(range(rows), 10):
            store.execute("UPDATE pages SET content = ? WHERE number = ?", (content, row))
        store.execute("COMMIT")
    print((time.perf_counter() - start) / rounds, flush=True)
