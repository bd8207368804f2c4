"""Give a job back, so that any worker gets it again after a delay.

It prints:

    delivery 1: the printer is off
    delivery 2: printed
"""

from reliable_pubsub import Publisher, Subscriber

with Publisher("office") as office, Subscriber("worker") as worker:
    worker.subscribe("jobs", group="printers", max_deliveries=5)  # then it is a dead letter
    office.put("jobs", b"report.pdf")
    for job in worker.messages("jobs", timeout_s=2):
        if job.delivery_count == 1:
            print("delivery 1: the printer is off")
            worker.nack(job, delay_s=0.5)
        else:
            print(f"delivery {job.delivery_count}: printed")
