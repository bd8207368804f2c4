"""The jobs as commands: what they say before they start a Spark."""

from __future__ import annotations

from tests.integration.harness import NOWHERE, Service


class TestArchiveCommand:
    def test_tells_a_proxy_that_does_not_answer_before_it_starts_spark(
        self, service: Service
    ) -> None:
        impatient = ("--ack-timeout", "0.1", "--send-retries", "1")
        job = service.run(
            "pipeline",
            *("archive", "--topic", "t", "--folder", "a", "--endpoint", NOWHERE, *impatient),
        )

        assert job.wait() == 3
        assert "error [PROXY_UNREACHABLE]: no answer to STATUS" in job.stderr

    def test_names_file_and_line_of_an_option_that_does_not_exist(self, service: Service) -> None:
        config = service.file("j.yaml", "topic: t\nfoldr: x\n")

        job = service.run("pipeline", "archive", "-f", config)

        assert job.wait() == 2
        told = job.stderr.replace("\n", " ")
        assert "line 2, foldr: found an unknown key" in told
        assert "did you mean 'folder'" in told
