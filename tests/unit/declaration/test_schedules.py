import pytest
from croniter import croniter

from puffin_ann.declaration.fields.schedules import PRESETS, check_schedule

TAKEN = [
    "0 3 * * *",
    "*/15 * * * *",
    "0-10/5,30 8-18 * * mon-fri",
    "00 03 1,15 * *",
    "5/10 * * JAN-mar Sun,2",
    "0 0 29 2 *",
    "0 0 L * *",
    "0 0 ? * sat#2",
    "0 0 * * L5",
    "0 0 * * 5-7",
    "0 0 * * fri-sun",
    "0 0 31 2 mon",
]


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_taken_is_a_schedule_to_airflows_own_reader_too(text):
    assert check_schedule(text) == text
    assert len(croniter(text).expanded) == 5
    assert croniter(text).get_next() > 0


@pytest.mark.parametrize("text", PRESETS)
def test_presets_are_taken(text):
    assert check_schedule(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "five fields"),
        ("nope", "five fields"),
        ("x y", "five fields"),
        ("* * * * * *", "five fields"),
        ("@nightly", "presets are @once"),
        ("60 * * * *", "'60' is no minute; allowed: 0 to 59"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * * 13 *", "'13' is no month; allowed: 1 to 12, jan to dec"),
        ("* * * * 8", "'8' is no day of the week"),
        ("* * * * moon", "'moon' is no day of the week"),
        ("*/0 * * * *", "a step of the minute is 1 to 59"),
        ("*/90 * * * *", "a step of the minute is 1 to 59"),
        ("30-10 * * * *", "goes from low to high"),
        ("1, * * * *", "'' is no minute"),
        ("1- * * * *", "'1-' is no minute"),
        ("٣ * * * *", "is no minute"),
        ("0 0 31 2,4 *", "there is no day 31"),
    ],
)
def test_what_is_no_schedule_is_refused_by_its_field(text, message):
    with pytest.raises(ValueError, match=r".") as caught:
        check_schedule(text)
    assert message in str(caught.value)
