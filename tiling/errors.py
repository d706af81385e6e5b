"""What can go wrong with an image file."""

from hires.errors import HiresError


class ImageError(HiresError):
    """A file or store that can't be read, isn't what it should be, or would take more memory than there is."""


class ImageWarning(UserWarning):
    """An image was read, but something about it was guessed or left out; the message says what."""
