"""Subscribe to every topic that matches a pattern, even to topics that do not exist yet.

It prints:

    sensor/kitchen/heat 21.5
    sensor/cellar/heat 12.0
"""

from reliable_pubsub import Publisher, Subscriber, glob

with Publisher("sensors") as sensors, Subscriber("display") as display:
    heat = glob("sensor/*/heat")
    display.subscribe(match=heat)
    sensors.put("sensor/kitchen/heat", b"21.5")
    sensors.put("sensor/kitchen/light", b"on")
    for reading in display.messages(heat, timeout_s=1):
        print(reading.topic, reading.payload.decode())
    sensors.put("sensor/cellar/heat", b"12.0")  # a new topic
    for reading in display.messages(heat, timeout_s=1):
        print(reading.topic, reading.payload.decode())
