"""Secrets are hidden by the name of a variable and by the shape of a value, everywhere (D7)."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsolid.cli.app import run
from rocsolid.model.redact import HIDDEN, redact, redact_value
from rocsolid.probe.variables import relevant_variables
from rocsolid.report.doctor import mask_text

WORD = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40)
UPPER = st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16)
# Anything that a password may be, without blanks and quotes; the last character is no `@`, which would end it early.
PASSWORD = st.text(string.ascii_letters + string.digits + "/:?#%&=+~!$*-_.@", min_size=6, max_size=20).map(
    lambda t: f"S3c{t}9zQ"
)

SETTINGS = settings(deadline=None, max_examples=60)


@SETTINGS
@given(
    secret=WORD,
    prefix=st.sampled_from(["hf_", "ghp_", "gho_", "ghs_", "github_pat_", "sk-", "glpat-", "xoxb-", "npm_"]),
)
def test_known_prefixes(secret: str, prefix: str) -> None:
    assert secret not in redact(f"before {prefix}{secret} after")
    assert redact(f"before {prefix}{secret} after") == f"before {HIDDEN} after"


@SETTINGS
@given(secret=UPPER, prefix=st.sampled_from(["AKIA", "ASIA"]))
def test_amazon_keys(secret: str, prefix: str) -> None:
    assert redact(f"x={prefix}{secret};") == f"x={HIDDEN};"


@SETTINGS
@given(head=WORD, body=WORD, end=WORD)
def test_json_web_tokens(head: str, body: str, end: str) -> None:
    assert redact(f"eyJ{head}.{body}.{end}") == HIDDEN


@SETTINGS
@given(body=WORD)
def test_private_keys(body: str) -> None:
    text = f"a\n-----BEGIN RSA PRIVATE KEY-----\n{body}\n{body}\n-----END RSA PRIVATE KEY-----\nb"
    assert redact(text) == f"a\n{HIDDEN}\nb"
    assert body not in redact(text[: text.index("-----END")])  # cut off


@SETTINGS
@given(password=PASSWORD, scheme=st.sampled_from(["postgresql", "https", "redis"]))
def test_logins_in_urls(password: str, scheme: str) -> None:
    shown = redact(f"cannot reach {scheme}://bob:{password}@db.example:5432/x today")
    assert password not in shown
    assert shown == f"cannot reach {scheme}://db.example:5432/x today"


@SETTINGS
@given(secret=WORD, name=st.sampled_from(["password", "passwd", "PWD", "token", "api_key", "secret", "sig"]))
def test_named_values(secret: str, name: str) -> None:
    for text in (f"?{name}={secret}&y=1", f"{name}: {secret}", f'"{name}": "{secret}"', f"--{name}={secret} x"):
        assert secret not in redact(text), text
    assert redact(f"?{name}={secret}&y=1") == f"?{name}={HIDDEN}&y=1"


@pytest.mark.parametrize(
    "name", ["TORCH_COOKIE", "HIP_SESSION", "TORCH_PRIVATE", "TORCH_DB_PWD", "TORCH_API_KEY", "NCCL_AUTH"]
)
def test_probe_and_doctor_hide_the_same_names(name: str) -> None:
    assert relevant_variables({name: "plain"}) == {name: HIDDEN}
    assert redact_value(name, "plain") == HIDDEN


def test_probe_hides_values_by_shape() -> None:
    shown = relevant_variables(
        {"TORCH_X": "AKIAIOSFODNN7EXAMPLE", "TORCH_Y": "eyJhbGciOi.eyJzdWIiOi.SflKxw", "TORCH_Z": "u:SECRET/DDD4@host"}
    )
    assert shown["TORCH_X"] == shown["TORCH_Y"] == HIDDEN
    assert "AKIA" not in mask_text("AKIAIOSFODNN7EXAMPLE")
    assert redact("redis://u:SECRET/DDD4@host") == "redis://host"


def test_harmless_text_is_kept() -> None:
    for text in ("torch 2.13.0+cpu", "https://github.com/pytorch/pytorch/issues/1", "me@example.org", "monkey: 3", "a:b@c",
                 "/home/me/x.py:12", "TRITON_CACHE_DIR=/tmp/x", "key 5 of 7", "aten::mm", "inductor.max_autotune = True"):  # fmt: skip
        assert redact(text) == text


def test_d7_errors_of_commands_show_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    for url in (
        "postgresql://bob:s3cret@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?password=s3cret",
        "postgresql://u:s3cret/D@127.0.0.1:1/x",
    ):
        assert run(["tune", "dashboard", "--study", url]) in (2, 3)
        assert run(["report", url]) == 2
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err
