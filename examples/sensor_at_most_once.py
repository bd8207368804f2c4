"""Put readings that may be lost (QoS 0): no storage, no request, no answer.

It prints:

    without a listener: unwanted
    with a listener: sent
    got 21.5
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("sensor") as sensor, Subscriber("display") as display:
    print("without a listener:", sensor.put("readings", b"21.4", qos=0).fate)
    display.subscribe("readings", qos=0)
    sensor.wait_for_interest("readings", timeout_s=300)
    print("with a listener:", sensor.put("readings", b"21.5", qos=0).fate)
    for reading in display.get("readings", timeout_s=300):
        print("got", reading.payload.decode())
