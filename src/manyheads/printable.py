"""Text from files and users, as a terminal and a picture can show it."""

import re

# Control characters, among them those that begin an escape sequence or a new line; those that turn the direction of
# writing; and halves of a character, which stand for bytes that are not UTF-8.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return the text in one line, with an escape such as \x1b for each character that cannot be shown.

    >>> print(printable("cat\x1b[2J"))
    cat\x1b[2J
    """
    return UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def abridged(text: str, length: int = 2_000) -> str:
    """Return the text in one line of at most this length; what is longer loses its middle.

    >>> abridged("data.path = " + 1_000 * "a" + ": not found", 30)
    'data.path = aa...aa: not found'
    """
    text, half = printable(text), (length - 3) // 2
    return text if len(text) <= length else f"{text[: length - 3 - half]}...{text[-half:]}"


def shortened(text: str, length: int = 100) -> str:
    """Return the text in one line of at most this length; a longer one ends in "..."."""
    text = printable(text[: length + 1])
    return text if len(text) <= length else f"{text[: length - 3]}..."
