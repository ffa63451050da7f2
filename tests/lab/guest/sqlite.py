#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A database of SQLite that several processes count in.

  sqlite.py make FILE MODE     makes it, with the journal mode MODE (delete, wal)
  sqlite.py count FILE N       adds one, N times, each in a transaction of its own
  sqlite.py is FILE N          fails unless N were added and the database is whole
"""
import sqlite3
import sys


def main():
    what, path, argument = sys.argv[1:4]
    database = sqlite3.connect(path, timeout=120, isolation_level=None)
    if what == "make":
        if database.execute(f"PRAGMA journal_mode={argument}").fetchone()[0] != argument:
            sys.exit(f"{path}: no journal mode {argument}")
        database.execute("CREATE TABLE counter (n INTEGER)")
        database.execute("CREATE TABLE added (n INTEGER PRIMARY KEY, text TEXT)")
        database.execute("INSERT INTO counter VALUES (0)")
    elif what == "count":
        for _ in range(int(argument)):
            database.execute("BEGIN IMMEDIATE")
            n = database.execute("SELECT n FROM counter").fetchone()[0] + 1
            database.execute("UPDATE counter SET n = ?", (n,))
            # Fails where somebody has the same number.
            database.execute("INSERT INTO added VALUES (?, ?)", (n, "x" * 500))
            database.execute("COMMIT")
    else:
        found = database.execute("SELECT n, (SELECT count(*) FROM added) FROM counter").fetchone()
        if found != (int(argument), int(argument)):
            sys.exit(f"{path}: {found} were added, not {argument}")
        whole = database.execute("PRAGMA integrity_check").fetchone()[0]
        if whole != "ok":
            sys.exit(f"{path}: {whole}")
    database.close()


main()
