"""Read the newest value, then follow the changes without a gap.

It prints:

    now: 21.0
    changed: 21.4
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("sensor") as sensor, Subscriber.unique("display") as display:
    sensor.put_many("heat", [b"20.9", b"21.0"])
    reading = display.read("heat")  # no subscription is needed
    if reading.message is not None:
        print("now:", reading.message.payload.decode())
    sensor.put("heat", b"21.4")  # it is not missed
    display.subscribe("heat", start=reading.position, session="clean")
    for change in display.messages("heat", timeout_s=1):
        print("changed:", change.payload.decode())
