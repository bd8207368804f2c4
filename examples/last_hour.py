"""Show the last hour, then everything new: a dashboard that keeps no state.

It prints:

    20.9
    21.0
    live
    21.4
"""

from datetime import timedelta

from reliable_pubsub import Publisher, Subscriber, ago

with Publisher("sensor") as sensor, Subscriber.unique("dashboard") as dashboard:
    sensor.put_many("heat", [b"20.9", b"21.0"])
    # A clean session ends with this program: no messages are kept for it afterwards.
    dashboard.subscribe("heat", start=ago(timedelta(hours=1)), session="clean")
    for reading in dashboard.messages("heat", timeout_s=1):
        print(reading.payload.decode())
    print("live")
    sensor.put("heat", b"21.4")
    for reading in dashboard.messages("heat", timeout_s=1):
        print(reading.payload.decode())
