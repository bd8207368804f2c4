"""Store each order once in your own SQLite database, even if the program is killed at any line.

The offset is stored in the transaction of the effect. What is redelivered has a lower offset.
"""

from __future__ import annotations

import sqlite3

from reliable_pubsub import Subscriber


def store_orders(database: str, timeout_s: float = 1.0) -> None:
    """Store orders until there is none for a while."""
    db = sqlite3.connect(database)
    db.execute("CREATE TABLE IF NOT EXISTS orders (item TEXT)")
    db.execute("CREATE TABLE IF NOT EXISTS place (topic TEXT PRIMARY KEY, next_offset INTEGER)")
    with Subscriber("accounts") as subscriber:
        subscriber.subscribe("orders")
        for order in subscriber.messages("orders", timeout_s=timeout_s):
            with db:  # one transaction: both statements or neither
                row = db.execute("SELECT next_offset FROM place WHERE topic = 'orders'").fetchone()
                if row is None or order.offset >= row[0]:
                    db.execute("INSERT INTO orders VALUES (?)", (str(order.value),))
                    db.execute("REPLACE INTO place VALUES ('orders', ?)", (order.offset + 1,))


if __name__ == "__main__":
    store_orders("orders.db")
