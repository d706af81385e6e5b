"""Help with misspelt names."""

import difflib
from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """``; did you mean a, b?``, or all there is where nothing is near and the list is short, or nothing."""
    known = sorted(known)
    lower = {k.lower(): k for k in known}
    near = [lower[k] for k in difflib.get_close_matches(word.lower(), lower, 3, 0.6)]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; there is: {', '.join(known)}" if known and len(known) <= 20 else ""
