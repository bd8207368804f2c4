"""Put each row of a database table once (the outbox pattern), even after a crash.

The publisher stores the id of the last row together with the message's number (`note`). After a
crash it resumes with the next row. A row that was in flight has the same number and is stored once.

It prints:

    put lamp
    put piano
    put chair
"""

import sqlite3
from tempfile import TemporaryDirectory

from reliable_pubsub import Batch, Publisher


def put_rows(db: sqlite3.Connection, state_dir: str) -> None:
    """Put the rows that have not been put before."""
    with Publisher("shop", state_dir=state_dir) as shop:
        shop.resume()
        last = int(shop.note or 0)
        rows = db.execute("SELECT id, item FROM outbox WHERE id > ? ORDER BY id", (last,))
        for number, item in rows.fetchall():
            shop.put_batch("orders", Batch([item.encode()]), note=b"%d" % number)
            print("put", item)


if __name__ == "__main__":
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, item TEXT)")
    with TemporaryDirectory() as state_dir:
        db.execute("INSERT INTO outbox (item) VALUES ('lamp'), ('piano')")
        put_rows(db, state_dir)
        db.execute("INSERT INTO outbox (item) VALUES ('chair')")
        put_rows(db, state_dir)
