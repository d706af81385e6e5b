"""What a reader is asked for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Arguments of `open_image` beyond the path; see there."""

    page: int | None = None
    series: int = 0
    level: int = 0
    label: bool = False
    keep_colour: bool = False
    axes: str | None = None
    fill: float | None = None
