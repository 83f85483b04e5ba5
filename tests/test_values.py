from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstore.values import Target, parse_age, parse_share, parse_size, parse_target, parse_wait, redact_url


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("cuda:90:32", Target("cuda", 90, 32)),
        ("cuda:100:32", Target("cuda", 100, 32)),
        ("hip:gfx942:64", Target("hip", "gfx942", 64)),
        ("hip:gfx90a:64", Target("hip", "gfx90a", 64)),
        ("xpu:pvc:16", Target("xpu", "pvc", 16)),
    ],
)
def test_targets(text: str, target: Target) -> None:
    parsed = parse_target(text)
    assert parsed == target
    assert type(parsed.arch) is type(target.arch)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cuda",
        "cuda:90",
        "cuda:9.0:32",
        "cuda:sm_90:32",
        "cuda:90:33",
        "cuda:90:",
        "cuda:90:32:1",
        "hip:942:64",
        "CUDA:90:32",
        "cuda: 90:32",
        "cuda:\u0669\u0660:32",
        "xpu::32",
        ":90:32",
        "cuda:090:32",
        "cuda:90:32\n",
    ],
)
def test_targets_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cuda:90:32|hip:gfx942:64"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 << 20),
        ("2GB", 2 * 10**9),
        ("1048576", 1 << 20),
        ("1.5 kib", 1536),
        ("7B", 7),
        ("1TiB", 1 << 40),
        ("0", 0),
        ("none", 0),
        (" Unlimited ", 0),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1M", "1e9", "MiB", "1 2", "nan", "inf", "1GiBx", "٣", "1" * 30, "0x10"])
def test_sizes_refused(text: str) -> None:
    with pytest.raises(ValueError, match="512MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "age"),
    [("90d", 90 * 86400), ("12h", 43200), ("3600", 3600), ("2w", 1209600), ("1.5m", 90), ("0", 0)],
)
def test_ages(text: str, age: float) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize("text", ["", "-1d", "1y", "d", "90 days", "inf"])
def test_ages_refused(text: str) -> None:
    with pytest.raises(ValueError, match="90d"):
        parse_age(text)


def test_what_is_beyond_all_dates_and_disks_is_refused() -> None:
    assert parse_age("36500d") == parse_wait("36500d") == 36500 * 86400
    assert parse_size("4194304TiB") == 2**62
    for parse, text in ((parse_age, "36501d"), (parse_wait, "999999999999999999w"), (parse_wait, "3153600001.5")):
        with pytest.raises(ValueError, match="at most 36500d"):
            parse(text)
    for text in ("4194305TiB", "999999999999999999tib"):
        with pytest.raises(ValueError, match="at most 4194304TiB"):
            parse_size(text)


@pytest.mark.parametrize(("text", "share"), [("0", 0.0), ("1", 1.0), ("0.05", 0.05), (".5", 0.5), ("1.0", 1.0)])
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "-0", "1.1", "5%", "nan", "."])
def test_shares_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"0\.05"):
        parse_share(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:hunter2@host:6379/0", "redis://***@host:6379/0"),
        ("rediss://me:hunter2@host/0?ssl=true", "rediss://***@host/0?ssl=true"),
        ("redis://me:hunt@r/2@host/0", "redis://***@host/0"),
        ("redis:me:hunter2@host/0", "redis:***@host/0"),
        ("memory:,redis://me:a,/hunter2@host/0,file:///x", "memory:,redis://***@host/0,file:///x"),
        ("file:///a,redis://me:hunter2@host", "file:///a,redis://***@host"),
        ("redis://host/0?password=hunter2&db=1", "redis://host/0?password=***&db=1"),
        (
            "s3://bucket/p?aws_secret_access_key=hunter2;region=x",
            "s3://bucket/p?aws_secret_access_key=***;region=x",
        ),
        ("az://c/p?X-Sig=hunter2#f", "az://c/p?X-Sig=***#f"),
        ("redis:/me:hunter2@host", "redis:/***@host"),
        ("redis:///:hunter2@host:6379/0", "redis:///***@host:6379/0"),
        ("redis:////me:hunter2@host", "redis:////***@host"),
        ("redis:\\\\me:hunter2@host", "redis:\\\\***@host"),
        ("file:///x, redis:/:hunter2@host", "file:///x, redis:/***@host"),
        ("redis:///me:hunter2", "redis:///***"),
        ("redis:me:hunter2", "redis:***"),
        ("me:hunter2@host", "me:***@host"),
        (":hunter2@host", "***@host"),
        ("redis://host/0?pw=hunter2", "redis://host/0?pw=***"),
        ("az://c/p?account=a&sas=hunter2", "az://c/p?account=a&sas=***"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("file:///home/a:b@c/store", "file:///home/a:b@c/store"),
        ("FILE:/home/me@work", "FILE:/home/me@work"),
        ("diskcache:///home/me@work", "diskcache:///home/me@work"),
        ("memory:@", "memory:@"),
        ("/home/a:b@c", "/home/a:b@c"),
        ("Generic S3 error: http error: request for http://h:9000/b/x: timeout",) * 2,
        ("file:///home/me@work/store", "file:///home/me@work/store"),
        ("/plain/path", "/plain/path"),
        ("memory:", "memory:"),
        ("", ""),
    ],
)
def test_urls_without_their_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@given(st.text(min_size=1).filter(lambda text: "@" not in text))
def test_no_password_of_any_spelling_is_shown(noise: str) -> None:
    secret = f"hunter2{noise}hunter2"
    assert "hunter2" not in redact_url(f"redis://user:{secret}@host/0")
