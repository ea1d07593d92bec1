"""Numbers as people write them, in sentences and settings: no powers of ten."""

import math

MAX_DECIMALS = 30


def plain_number(value: float, significant: int = 6, *, grouped: bool = True) -> str:
    """A number with all digits of its integer part, and at least so many `significant` ones but for zeros at the end;
    `grouped`: with commas between thousands.

    Examples:
        >>> from adaptive_eval.base.numbers import plain_number
        >>> plain_number(0.00001), plain_number(1234567.8), plain_number(150.0, 2), plain_number(2.5)
        ('0.00001', '1,234,568', '150', '2.5')
    """
    if not math.isfinite(value):
        return str(value)
    first = math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:,.{min(max(significant - 1 - first, 0), MAX_DECIMALS)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text if grouped else text.replace(",", "")
