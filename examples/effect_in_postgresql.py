"""Store each order once in your own PostgreSQL database, even if the program is killed at any line.

Needs `pip install 'psycopg[binary]'`. The offset is stored in the transaction of the effect.
"""

import sys

import psycopg

from reliable_pubsub import Earliest, Subscriber

TABLES = """
    CREATE TABLE IF NOT EXISTS orders (item text);
    CREATE TABLE IF NOT EXISTS place (topic text PRIMARY KEY, next_offset bigint)"""
MOVE = """
    INSERT INTO place VALUES ('orders', %s) ON CONFLICT (topic)
    DO UPDATE SET next_offset = excluded.next_offset
    WHERE place.next_offset < excluded.next_offset"""


def store_orders(database: str, timeout_s: float | None = None) -> None:
    """Store orders until there was none for `timeout_s`; None: until Ctrl-C."""
    with psycopg.connect(database, autocommit=True) as db, Subscriber("accounts") as subscriber:
        db.execute(TABLES)
        subscriber.subscribe("orders", start=Earliest)
        for order in subscriber.messages("orders", timeout_s=timeout_s):
            with db.transaction():  # both statements or neither
                if db.execute(MOVE, (order.offset + 1,)).rowcount:
                    db.execute("INSERT INTO orders VALUES (%s)", (order.payload.decode(),))


if __name__ == "__main__":
    store_orders(sys.argv[1])  # for example postgresql://localhost/shop
