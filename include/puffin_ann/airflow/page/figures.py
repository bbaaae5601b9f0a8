"""Numbers, times and bytes as people read them."""

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
NOTHING = "–"


def count(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return NOTHING if value is None else f"{value:,}"


def share(value: float | None, digits: int = 1) -> str:
    """Return a share in percent; what is not all of it is not rounded up to that."""
    if value is None:
        return NOTHING
    text = f"{value:.{digits}%}"
    return (
        f"> {1 - 10 ** -(digits + 2):.{digits}%}" if value < 1 and text.startswith("100") else text
    )


def recall(value: float | None) -> str:
    """Return a recall."""
    return NOTHING if value is None else f"{value:.3f}"


def size(value: float | None) -> str:
    """Return bytes."""
    if value is None:
        return NOTHING
    unit = 0
    while value >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return (
        f"{value:,.0f} {UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {UNITS[unit]}"
    )


def duration(seconds: float | None) -> str:
    """Return a time span by its two greatest units at most."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 1:
        return "< 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" if whole >= 600 else _two(whole, 60, "min", 1, "s")
    if whole < 86_400:
        return _two(whole, 3600, "h", 60, "min")
    return _two(whole, 86_400, "d", 3600, "h")


def ago(at_ms: int | None, now_ms: int) -> str:
    """Return how long ago something was."""
    return NOTHING if at_ms is None else f"{_coarse(now_ms - at_ms)} ago"


def until(at_ms: int | None, now_ms: int) -> str:
    """Return in how long something will be."""
    if at_ms is None:
        return NOTHING
    return "now" if at_ms <= now_ms else f"in {_coarse(at_ms - now_ms)}"


def _coarse(milliseconds: int) -> str:
    """Return a time span by its greatest unit."""
    first, unit, *_ = duration(max(0, milliseconds) // 1000).split()
    return f"{first} {unit}"


def _two(whole: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    first, rest = whole // unit, whole % unit // smaller
    return f"{first} {name} {rest} {smaller_name}" if rest else f"{first} {name}"
