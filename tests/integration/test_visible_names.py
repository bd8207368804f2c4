"""What every command prints of a name that holds marks of direction: its codes, never the marks."""

from __future__ import annotations

from .harness import IMPATIENT_OPTIONS, Process, Service

MARK, UNSEEN = "\u202e", "\u200b"
TOPIC = f"p{MARK}{UNSEEN}q"
SHOWN = "pU+202EU+200Bq"


def check_output(process: Process, *, code: int = 0) -> None:
    assert process.wait() == code, process.stderr
    printed = process.stdout + process.stderr
    assert not {MARK, UNSEEN} & set(printed), printed
    assert SHOWN in printed, printed


def test_every_command_shows_the_marks_in_a_topic_as_codes(service: Service) -> None:
    service.start_proxy()
    asked = ("--endpoint", service.subscriber_endpoint)
    get = f"- {{action: subscribe, topic: {TOPIC}}}\n- {{action: get, topic: {TOPIC}}}\n"
    options = (*IMPATIENT_OPTIONS, "--state-dir", service.state_dir)
    getting = service.run(
        "subscriber", "-f", service.file("get.yaml", f"steps:\n{get}"), "-i", "s", *asked, *options
    )
    service.subscribed(TOPIC, "s")
    put = f"steps:\n- {{topic: {TOPIC}, message: 'x{MARK}y'}}\n"

    check_output(service.publisher("p", put, "--dry-run"))
    check_output(service.publisher("p", put))
    check_output(getting)
    check_output(service.run("", "status", *asked))
    check_output(service.run("", "admin", "list", *asked))
    check_output(service.run("", "admin", "delete-topic", TOPIC, "--dry-run", *asked))
    check_output(service.run("publisher", "-i", "q", "-f", f"{TOPIC}.yaml"), code=2)
    service.proxy.terminate()
    check_output(service.run("", "check", service.data_dir))
