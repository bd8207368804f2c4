"""Put messages on two topics, both or none.

It prints:

    after an error: 0 debits, 0 credits
    after the block: 1 debits, 1 credits
"""

from reliable_pubsub import Publisher, Subscriber


def show(when: str) -> None:
    """Print how many messages each topic has."""
    with Subscriber("auditor") as auditor:
        debits, credits = auditor.history("debits"), auditor.history("credits")
    print(f"{when}: {len(debits)} debits, {len(credits)} credits")


with Publisher("bank") as bank:
    try:
        with bank.transaction() as transfer:
            transfer.put("debits", b"42")
            raise RuntimeError("the account is closed")
    except RuntimeError:
        show("after an error")
    with bank.transaction() as payment:
        payment.put("debits", b"42")
        payment.put("credits", b"42")
    show("after the block")
