"""Put and get with asyncio: the same calls, awaited.

It prints:

    10 orders stored by 10 tasks
    10 orders received
"""

import asyncio

from reliable_pubsub import aio


async def main() -> None:
    """Put orders from tasks, and get them."""
    async with aio.Publisher("shop") as shop, aio.Subscriber("shipping") as shipping:
        await shipping.subscribe("orders")
        puts = [shop.put("orders", b"%d" % number) for number in range(10)]
        receipts = await asyncio.gather(*puts)  # they share requests
        print(f"{len(receipts)} orders stored by {len(puts)} tasks")
        found = [order async for order in shipping.messages("orders", timeout_s=1)]
        print(f"{len(found)} orders received")


asyncio.run(main())
