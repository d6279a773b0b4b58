"""Size texts."""

import pytest

import tensorshelf as ts
from tensorshelf._size import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        ("1", 1),
        ("17 B", 17),
        ("1kB", 1000),
        ("1 KB", 1000),
        ("1KiB", 1024),
        ("64MiB", 64 << 20),
        ("500 MB", 500_000_000),
        ("1GiB", 1 << 30),
        (" 1.5 TiB ", 3 << 39),
        ("0.3GB", 300_000_000),
        (1 << 62, 1 << 62),
    ],
)
def test_reads(text: "int | str", size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "big", "1G", "1 m", "-1GiB", "1..5GiB", "1GiBB", "1e9", "GiB", "0", "8EiB", "5000PiB"],
)
def test_refuses_with_examples(text: str) -> None:
    with pytest.raises(ts.BadArgument, match="iB") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


def test_refuses_more_digits_than_say_anything() -> None:
    with pytest.raises(ts.BadArgument, match="size has 5000 digits"):
        parse_size("1" * 5000)


@pytest.mark.parametrize("value", [0, -5, 1.5, None, True, b"1GiB", 1 << 63])
def test_refuses_other_types(value: object) -> None:
    with pytest.raises(ts.BadArgument):
        parse_size(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 60, "1024.0 PiB"),
    ],
)
def test_writes(size: int, text: str) -> None:
    assert format_size(size) == text
