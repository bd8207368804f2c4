"""One table of settings, one rule of precedence, and errors that say where a value came from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliable_pubsub.common.command_line import settings_from
from reliable_pubsub.common.core.endpoint import check_endpoint
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.resolving import (
    Resolved,
    resolve,
    settings_from_document,
    typed_settings,
    unknown_variables,
)
from reliable_pubsub.common.core.settings import BY_NAME, SETTINGS, Setting
from reliable_pubsub.common.core.wording import did_you_mean
from reliable_pubsub.common.yaml_file import parse_yaml


def from_json(text: str, path: str = "settings.json") -> dict[str, Resolved]:
    return settings_from_document(parse_yaml(text, path))


def json_refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        from_json(text)
    return str(caught.value)


def yaml_refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        settings_from_document(parse_yaml(text, "proxy.yaml"))
    return str(caught.value)


class TestPrecedence:
    FILE = from_json('{"send_retries": 3}')
    ENVIRONMENT: Mapping[str, str] = MappingProxyType({"RELIABLE_PUBSUB_SEND_RETRIES": "2"})

    def test_the_command_line_counts_before_everything(self) -> None:
        resolved = resolve({"send_retries": 4}, self.FILE, self.ENVIRONMENT)

        assert resolved["send_retries"] == Resolved(4, "--send-retries")

    def test_the_file_counts_before_the_environment(self) -> None:
        resolved = resolve({"send_retries": None}, self.FILE, self.ENVIRONMENT)

        assert resolved["send_retries"] == Resolved(3, "settings.json, line 1")

    def test_the_environment_counts_before_the_default(self) -> None:
        resolved = resolve({}, None, self.ENVIRONMENT)

        assert resolved["send_retries"] == Resolved(2, "RELIABLE_PUBSUB_SEND_RETRIES")

    def test_what_is_not_set_has_its_default(self) -> None:
        resolved = resolve({}, None, {"PATH": "/bin"})

        assert list(resolved) == [setting.name for setting in SETTINGS]
        assert all(
            resolved[setting.name] == Resolved(setting.default, "default") for setting in SETTINGS
        )

    def test_zero_is_a_value_and_not_missing(self) -> None:
        assert resolve({"send_retries": 0}, self.FILE, {})["send_retries"].value == 0

    @given(
        command_line=st.none() | st.integers(0, 1000),
        file=st.none() | st.integers(0, 1000),
        variable=st.none() | st.integers(0, 1000),
    )
    @settings(deadline=None)
    def test_the_first_origin_that_speaks_counts(
        self, command_line: int | None, file: int | None, variable: int | None
    ) -> None:
        text = "{}" if file is None else json.dumps({"send_retries": file})
        environment = {} if variable is None else {"RELIABLE_PUBSUB_SEND_RETRIES": str(variable)}

        resolved = resolve({"send_retries": command_line}, from_json(text), environment)

        spoken = [value for value in (command_line, file, variable, 10) if value is not None]
        assert resolved["send_retries"].value == spoken[0]

    def test_a_wrong_value_is_reported_even_if_a_higher_origin_overrides_it(self) -> None:
        with pytest.raises(ConfigurationError, match="RELIABLE_PUBSUB_SEND_RETRIES: found 'x'"):
            resolve({"send_retries": 1}, None, {"RELIABLE_PUBSUB_SEND_RETRIES": "x"})


class TestTheTable:
    def test_names_are_unique(self) -> None:
        assert len(BY_NAME) == len(SETTINGS)

    @pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
    def test_each_default_is_a_value_that_may_be_set(self, setting: Setting) -> None:
        file = from_json(json.dumps({setting.name: setting.default}))
        line = resolve({setting.name: str(setting.default)}, None, {})

        assert file[setting.name].value == line[setting.name].value == setting.default

    @pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
    def test_each_setting_has_the_same_name_everywhere(self, setting: Setting) -> None:
        assert setting.flag == "--" + setting.name.replace("_", "-")
        assert setting.variable == "RELIABLE_PUBSUB_" + setting.name.upper()
        assert setting.help

    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("ack_timeout", "0.5", 0.5),
            ("ack_timeout", "1e-3", 0.001),
            ("send_retries", "0", 0),
            ("send_retries", " 7 ", 7),
            ("durability", "os", "os"),
            ("data_dir", "/var/lib/pubsub", "/var/lib/pubsub"),
            ("publisher_endpoint", "tcp://*:5555", "tcp://*:5555"),
        ],
    )
    def test_text_is_taken_as_what_it_shows(self, name: str, text: str, value: object) -> None:
        assert resolve({}, None, {BY_NAME[name].variable: text})[name].value == value

    @pytest.mark.parametrize(
        ("name", "text", "expected"),
        [
            ("ack_timeout", "0", "a number above 0 to 3,600 (s)"),
            ("ack_timeout", "nan", "a number above 0"),
            ("send_retries", "-1", "a whole number from 0 to 1,000"),
            ("send_retries", "9" * 5000, "a whole number from 0 to 1,000"),
            ("snapshot_interval_ms", "0", "a whole number from 1 to 60,000 (ms)"),
            ("topic_bytes_max", "1000", "a whole number from 1,048,576"),
            ("durability", "Sync", "one of sync, os, snapshot; did you mean 'sync'?"),
            ("data_dir", "", "the path of a directory"),
            ("state_dir", "a\0b", "the path of a directory"),
            ("subscriber_endpoint", "localhost:5556", "an endpoint such as tcp://127.0.0.1:5555"),
        ],
    )
    def test_a_wrong_text_is_reported_with_variable_or_flag_and_range(
        self, name: str, text: str, expected: str
    ) -> None:
        setting = BY_NAME[name]
        told = f"found {text!r:.60}, expected {expected}"

        with pytest.raises(ConfigurationError, match=re.escape(f"{setting.variable}: {told}")):
            resolve({}, None, {setting.variable: text})
        with pytest.raises(ConfigurationError, match=re.escape(f"{setting.flag}: {told}")):
            resolve({name: text}, None, {})

    def test_all_wrong_values_are_reported_at_once(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            resolve({"snapshot_interval_ms": 0}, None, {"RELIABLE_PUBSUB_ACK_TIMEOUT": "x"})

        told = str(caught.value).splitlines()
        assert [line.split(":")[0] for line in told] == [
            "RELIABLE_PUBSUB_ACK_TIMEOUT",
            "--snapshot-interval-ms",
        ]

    def test_an_unknown_name_on_the_command_line_is_reported(self) -> None:
        with pytest.raises(ConfigurationError, match="did you mean 'ack_timeout'"):
            resolve({"ack_time": 1}, None, {})

    @pytest.mark.parametrize("service", ["RELIABLE_PUBSUB", "RELIABLE_PUBSUB_PROXY_2"])
    def test_the_variables_of_a_kubernetes_service_are_warned_of_once(self, service: str) -> None:
        url = "tcp://10.0.171.239:5555"
        (warning,) = unknown_variables(
            {
                f"{service}_SERVICE_HOST": "10.0.171.239",
                f"{service}_SERVICE_PORT": "5555",
                f"{service}_SERVICE_PORT_PUBLISHERS": "5555",
                f"{service}_PORT": url,
                f"{service}_PORT_5555_TCP": url,
                f"{service}_PORT_5555_TCP_PROTO": "tcp",
                f"{service}_PORT_5555_TCP_PORT": "5555",
                f"{service}_PORT_5555_TCP_ADDR": "10.0.171.239",
            }
        )

        assert f"such as {service}_PORT (8 in all)" in warning
        assert "enableServiceLinks: false" in warning

    def test_a_port_that_a_person_has_set_is_an_unknown_variable(self) -> None:
        (warning,) = unknown_variables({"RELIABLE_PUBSUB_PORT": "5555"})

        assert warning.startswith("RELIABLE_PUBSUB_PORT: unknown variable")

    def test_variables_that_look_like_settings_are_warned_of(self) -> None:
        assert unknown_variables(
            {"RELIABLE_PUBSUB_ACK_TIMOUT": "1", "RELIABLE_PUBSUB_ACK_TIMEOUT": "1", "PATH": ""}
        ) == [
            "RELIABLE_PUBSUB_ACK_TIMOUT: unknown variable; it has no effect; "
            "did you mean 'RELIABLE_PUBSUB_ACK_TIMEOUT'?"
        ]


class TestASettingsFile:
    def test_it_gives_its_values_with_their_origin(self) -> None:
        text = '{"ack_timeout": 1,\n\t"durability":\t"os"\n}'

        assert from_json(text, "p/settings.json") == {
            "ack_timeout": Resolved(1.0, "p/settings.json, line 1"),
            "durability": Resolved("os", "p/settings.json, line 2"),
        }

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ('{"ack_timeout": 1,\n "x" 2}', "settings.json, line 2, column 6: expected ',' or '}'"),
            ("", "settings.json, line 1: found nothing, expected a mapping of settings"),
            ("[1]", "settings.json, line 1: found a list of 1, expected a mapping of settings"),
            ('{"ack_timeout": NaN}', "found 'NaN', expected a number above 0"),
            ('{"ack_timeout": 1,\n "ack_timeout": 2}', "settings.json, line 2, column 2: key "
             "'ack_timeout' is given twice, first on line 1"),
            ("[" * 100_000, "more than 20 levels inside each other"),
            ('{"send_retries": ' + "9" * 5000 + "}", "of more than 100 characters"),
            ('{"durability":\n"os",\n"ack-timeout": 1}', "settings.json, line 3, ack-timeout: "
             "unknown setting; did you mean 'ack_timeout'?"),
            ('{"zzz": 1}', "unknown setting; known are ack_timeout, send_retries, "),
            ('\n{"ack_timeout": "1"}', "settings.json, line 2, ack_timeout: found '1', expected a "
             "number above 0 to 3,600 (s)"),
            ('{"send_retries": null}', "found nothing, expected a whole number"),
            ('{"data_dir": {}}', "found a mapping, expected the path of a directory"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_reported_with_file_line_and_key(self, text: str, told: str) -> None:
        assert told in json_refusal(text)

    @given(st.text() | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(
            st.sampled_from(list(BY_NAME)) | st.text(), inner
        ),
    ).map(json.dumps))  # fmt: skip
    @settings(deadline=None)
    def test_any_text_gives_settings_or_a_configuration_error(self, text: str) -> None:
        try:
            file = from_json(text)
        except ConfigurationError:
            return
        typed_settings(resolve({}, file, {}))


class TestAYamlFileOfTheProxy:
    def test_it_has_the_same_names(self) -> None:
        document = parse_yaml("durability: os\n\nsnapshot_interval_ms: 8\n", "proxy.yaml")

        assert settings_from_document(document) == {
            "durability": Resolved("os", "proxy.yaml, line 1"),
            "snapshot_interval_ms": Resolved(8, "proxy.yaml, line 3"),
        }

    def test_problems_are_reported_with_their_lines(self) -> None:
        told = yaml_refusal("durability: {os: 1,\n  topics_max: 2}\ntopic_max: 8\n")

        assert told.splitlines() == [
            "proxy.yaml, line 1, durability: found a mapping, expected one of sync, os, snapshot",
            "proxy.yaml, line 3, topic_max: unknown setting; did you mean 'topics_max'?",
        ]

    def test_it_is_a_mapping(self) -> None:
        assert "proxy.yaml, line 1: found nothing, expected a mapping" in yaml_refusal("")


class TestAnEndpoint:
    @pytest.mark.parametrize(
        "endpoint",
        [
            "tcp://127.0.0.1:5555",
            "tcp://127.8.9.10:1",
            "tcp://localhost:65535",
            "tcp://LOCALHOST:5555",
            "tcp://[::1]:5555",
            "tcp://[::ffff:127.0.0.1]:5555",
            "tcp://[0:0:0:0:0:0:0:1]:5555",
            "ipc:///run/pubsub.sock",
            "ipc://relative",
        ],
    )
    def test_on_this_machine_it_needs_no_leave(self, endpoint: str) -> None:
        assert check_endpoint(endpoint, allow_plaintext=False) is None
        assert check_endpoint(endpoint, allow_plaintext=True) is None

    @pytest.mark.parametrize(
        "endpoint",
        [
            "tcp://10.0.0.1:5555",
            "tcp://0.0.0.0:5555",
            "tcp://[::]:5555",
            "tcp://[fe80::1]:5555",
            "tcp://[::ffff:10.0.0.1]:5555",
            "tcp://broker.example.org:5555",
            "tcp://localhost.example.org:5555",
            "tcp://127.0.0.1.example.org:5555",
            "tcp://eth0:5555",
        ],
    )
    def test_outside_this_machine_it_needs_leave_and_a_warning(self, endpoint: str) -> None:
        with pytest.raises(ConfigurationError, match=r"not encrypted.* pass --allow-plaintext"):
            check_endpoint(endpoint, allow_plaintext=False)

        warning = check_endpoint(endpoint, allow_plaintext=True)

        assert warning is not None
        assert endpoint in warning
        assert "not encrypted" in warning

    @pytest.mark.parametrize(
        "endpoint",
        [
            "",
            "127.0.0.1:5555",
            "localhost",
            "http://127.0.0.1:5555",
            "TCP://127.0.0.1:5555",
            "tcp://127.0.0.1",
            "tcp://127.0.0.1:",
            "tcp://127.0.0.1:0",
            "tcp://127.0.0.1:65536",
            "tcp://127.0.0.1:5555/",
            "tcp://127.0.0.1:5555\n",
            "tcp://127.0.0.1:\u0665",
            "tcp://127.0.0.256:5555",
            "tcp://127.1:5555",
            "tcp://::1:5555",
            "tcp://[127.0.0.1]:5555",
            "tcp://[::g]:5555",
            "tcp://:5555",
            "tcp://a b:5555",
            "tcp://127.0.0.1:1;127.0.0.1:2",
            "tcp://*:5555",
            "tcp://127.0.0.1:*",
            "ipc://",
            "ipc://" + "x" * 108,
            "ipc://a\0b",
            "inproc://x",
            "epgm://eth0;239.192.1.1:5555",
        ],
    )
    def test_another_form_is_refused_with_an_example(self, endpoint: str) -> None:
        with pytest.raises(ConfigurationError, match=r"such as tcp://127\.0\.0\.1:5555 or ipc://"):
            check_endpoint(endpoint, allow_plaintext=True)

    def test_only_a_proxy_may_leave_port_or_interface_open(self) -> None:
        assert check_endpoint("tcp://127.0.0.1:*", allow_plaintext=False, bind=True) is None
        with pytest.raises(ConfigurationError, match="--allow-plaintext"):
            check_endpoint("tcp://*:5555", allow_plaintext=False, bind=True)
        assert check_endpoint("tcp://*:5555", allow_plaintext=True, bind=True)

    @given(st.text() | st.from_regex(r"(tcp|ipc)://.*"))
    @settings(deadline=None)
    def test_any_text_is_accepted_or_refused(self, endpoint: str) -> None:
        try:
            assert check_endpoint(endpoint, allow_plaintext=True) != ""
        except ConfigurationError:
            return


def test_the_closest_word_is_named_whatever_its_case_and_dashes() -> None:
    assert did_you_mean("Ack-TimeOut", BY_NAME) == "; did you mean 'ack_timeout'?"
    assert did_you_mean("quite something else", BY_NAME) == ""


def test_settings_opens_no_file_and_asks_no_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.json").write_text('{"send_retries": 1}')
    monkeypatch.setenv("RELIABLE_PUBSUB_SEND_RETRIES", "2")

    assert resolve({}, None, {})["send_retries"].origin == "default"


def test_the_variable_of_the_settings_directory_is_read_and_not_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "settings.json").write_text('{"send_retries": 7}', encoding="utf-8")
    monkeypatch.setenv("RELIABLE_PUBSUB_DIR", str(tmp_path))

    assert settings_from("status", {}).send_retries == 7
    assert capsys.readouterr().err == ""
