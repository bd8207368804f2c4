"""Each alert fires when it should, and not otherwise: judged by Prometheus itself (promtool)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .harness import REPOSITORY

RULES = REPOSITORY / "configs" / "operating" / "alerts.yaml"
PAGE = next(REPOSITORY.glob("docs/**/operating.md"))
JOB = 'job="reliable-pubsub",instance="a"'
KEYS = 'reason="unknown_key",instance="a"'
DAY_M = 24 * 60
# By alert: a name, the series by minute, when to look (minutes), and whether it fires.
Case = tuple[str, dict[str, str], int, bool]
LAG = 'reliable_pubsub_subscription_lag_seconds{instance="a",topic="t",subscriber="s"}'
DEAD = 'reliable_pubsub_dead_letters_total{instance="a",topic="t"}'
BACKUP = 'reliable_pubsub_last_backup_timestamp_seconds{instance="a"}'
DISK = 'reliable_pubsub_disk_free_bytes{instance="a"}'
CASES: dict[str, list[Case]] = {
    "NotServing": [
        ("no page", {f"up{{{JOB}}}": "1x5 0x10"}, 10, True),
        ("not ready", {f"reliable_pubsub_ready{{{JOB}}}": "0x15"}, 10, True),
        ("well", {f"up{{{JOB}}}": "1x15", f"reliable_pubsub_ready{{{JOB}}}": "1x15"}, 10, False),
        (
            "standby",
            {
                f"reliable_pubsub_ready{{{JOB}}}": "0x15",
                f'reliable_pubsub_role{{{JOB},role="standby"}}': "1x15",
            },
            10,
            False,
        ),
    ],
    "NoStandby": [
        ("none", {'reliable_pubsub_standbys{instance="a"}': "1x5 0x15"}, 15, True),
        ("one", {'reliable_pubsub_standbys{instance="a"}': "1x20"}, 15, False),
    ],
    "UnknownKeys": [
        (
            "at a proxy",
            {f"reliable_pubsub_failed_handshakes_total{{{KEYS}}}": "0+1x10"},
            9,
            True,
        ),
        (
            "at a relay",
            {f"reliable_pubsub_relay_failed_handshakes_total{{{KEYS}}}": "0+1x10"},
            9,
            True,
        ),
        (
            "none",
            {f"reliable_pubsub_failed_handshakes_total{{{KEYS}}}": "3x10"},
            9,
            False,
        ),
    ],
    "NearlyFull": [
        (
            "a bound of a proxy",
            {'reliable_pubsub_bound_used_ratio{instance="a",bound="topics"}': "0.9x10"},
            8,
            True,
        ),
        (
            "a bound of a relay",
            {'reliable_pubsub_relay_bound_used_ratio{instance="a",bound="connections"}': "0.9x10"},
            8,
            True,
        ),
        (
            "a disk",
            {DISK: "5x10", 'reliable_pubsub_disk_size_bytes{instance="a"}': "100x10"},
            8,
            True,
        ),
        (
            "refused puts",
            {'reliable_pubsub_refusals_total{instance="a",code="FULL"}': "0+1x10"},
            8,
            True,
        ),
        (
            "a closed relay",
            {'reliable_pubsub_relay_entrance_closed_seconds_total{instance="a"}': "0+60x10"},
            8,
            True,
        ),
        (
            "half full",
            {
                'reliable_pubsub_bound_used_ratio{instance="a",bound="topics"}': "0.5x10",
                'reliable_pubsub_refusals_total{instance="a",code="FULL"}': "7x10",
            },
            8,
            False,
        ),
    ],
    "SubscriberBehind": [
        ("slow", {LAG: "0+60x30"}, 15, True),
        ("well", {LAG: "10x30"}, 15, False),
        ("lost, which another alert reports", {LAG: "90000x30"}, 15, False),
    ],
    "SubscriberLost": [
        ("for a day", {LAG: f"0+60x{2 * DAY_M}"}, DAY_M + 10, True),
        ("reported once", {LAG: f"0+60x{2 * DAY_M}"}, DAY_M + 70, False),
        ("slow only", {LAG: "0+60x600"}, 500, False),
    ],
    "DeadLetters": [
        ("one more", {DEAD: "7x10 8x10"}, 15, True),
        ("the first one", {DEAD: "_x20 1x10"}, 25, True),
        ("old ones", {DEAD: "7x60"}, 50, False),
    ],
    "DiskFullSoon": [
        ("filling", {DISK: "1000000-1000x600"}, 500, True),
        ("slowly", {DISK: "1000000-100x600"}, 500, False),
    ],
    "BackupOutdated": [
        ("yesterday's failed", {BACKUP: f"0x{2 * DAY_M}"}, 27 * 60, True),
        ("last night's", {BACKUP: f"0x{2 * DAY_M}"}, 25 * 60, False),
    ],
    "KeyNearlyFull": [
        (
            "near",
            {'reliable_pubsub_key_bound_used_ratio{instance="a",key="k",quota="q"}': "0.9x15"},
            10,
            True,
        ),
        (
            "far",
            {'reliable_pubsub_key_bound_used_ratio{instance="a",key="k",quota="q"}': "0.5x15"},
            10,
            False,
        ),
    ],
}


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    return found


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def fires(tmp_path: Path, alert: str, series: dict[str, str], at_m: int) -> bool:
    """Whether an alert fires at a minute; promtool says it by what it did not expect."""
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "alert_rule_test": [
                    {"eval_time": f"{at_m}m", "alertname": alert, "exp_alerts": []}
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    command = [promtool(), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0 or "got:[" in re.sub(r"\s", "", text), text
    return done.returncode != 0


@pytest.mark.parametrize(
    ("alert", "case"),
    [
        pytest.param(f"ReliablePubsub{alert}", case, id=f"{alert}: {case[0]}")
        for alert, cases in CASES.items()
        for case in cases
    ],
)
def test_an_alert_fires_when_it_should_and_only_then(
    tmp_path: Path, alert: str, case: Case
) -> None:
    _, series, at_m, expected = case

    assert fires(tmp_path, alert, series, at_m) == expected


def test_each_alert_has_a_case_and_says_what_to_do() -> None:
    names = {rule["alert"] for rule in rules()}
    page = PAGE.read_text(encoding="utf-8")

    assert names == {f"ReliablePubsub{alert}" for alert in CASES}
    for rule in rules():
        assert f"\n### {rule['alert']}\n" in page
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_the_rules_are_correct_to_prometheus() -> None:
    command = [promtool(), "check", "rules", str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
