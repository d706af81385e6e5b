"""Colour spaces of files to RGB, pixel by pixel. Samples are the last axis throughout."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# CIE L*a*b* (D50) to linear sRGB (D65): Bradford-adapted matrix of Lindbloom, "RGB/XYZ matrices".
_XYZ50_TO_RGB = np.array([[3.1338561, -1.6168667, -0.4906146],
                          [-0.9787684, 1.9161415, 0.0334540],
                          [0.0719453, -0.2289914, 1.4052427]])
_D50 = np.array([0.96422, 1.0, 0.82521])


@dataclass(frozen=True)
class Colour:
    """How stored samples become the samples of an image.

    kind: keep, invert, scale, palette, cmyk, lab, icclab, ycbcr. bits: significant bits of a stored sample.
    dtype: of stored samples. samples: stored per pixel. table: palette, (entries, 3) uint8.
    luma: red, green, blue weights of Y; reference: black and white of Y, Cb, Cr (TIFF 6.0, section 21).
    """

    kind: str
    dtype: np.dtype
    samples: int
    bits: int
    negative: bool = False
    table: NDArray[np.uint8] | None = field(default=None, compare=False)
    luma: tuple[float, ...] = (0.299, 0.587, 0.114)
    reference: tuple[float, ...] = (0, 255, 128, 255, 128, 255)

    @property
    def channels(self) -> int:
        """Samples per pixel after conversion."""
        if self.kind == "palette":
            return 3
        return self.samples - 1 if self.kind == "cmyk" else self.samples

    @property
    def out(self) -> np.dtype:
        """Type after conversion."""
        return np.dtype(np.uint8) if self.kind in ("palette", "scale") else self.dtype

    @property
    def separable(self) -> bool:
        """True where a channel needs no other sample than its own."""
        return self.kind in ("keep", "scale")

    def __call__(self, raw: NDArray) -> NDArray:
        """Stored samples (…, samples) to channels (…, channels)."""
        if self.negative:
            raw = self._inverted(raw)
        if self.kind == "keep":
            return raw
        if self.kind == "scale":
            return scaled(raw, self.bits)
        if self.kind == "palette":
            assert self.table is not None
            return self.table[np.minimum(raw[..., 0].astype(np.intp), len(self.table) - 1)]
        if self.kind == "cmyk":
            return cmyk_to_rgb(raw, self.bits)
        if self.kind in ("lab", "icclab"):
            return lab_to_rgb(raw, signed=self.kind == "lab")
        return ycbcr_to_rgb(raw, self.luma, self.reference)

    def _inverted(self, raw: NDArray) -> NDArray:
        if raw.dtype.kind == "b":
            return ~raw
        most = raw.dtype.type((1 << self.bits) - 1)
        return most - np.minimum(raw, most)


def scaled(values: NDArray, bits: int) -> NDArray[np.uint8]:
    """Values of fewer than eight bits as 0 … 255: 1 bit gives 0 and 255."""
    most = (1 << bits) - 1
    table = np.round(np.arange(most + 1) * 255 / most).astype(np.uint8)
    return table[values.astype(np.uint8)]


def cmyk_to_rgb(values: NDArray, bits: int) -> NDArray:
    """Cyan, magenta, yellow, black (full ink = largest value) to RGB without a profile; other samples follow."""
    most = (1 << bits) - 1
    wide = np.uint32 if bits <= 8 else np.uint64
    light = (most - np.minimum(values[..., :4], most)).astype(wide)
    rgb = ((light[..., :3] * light[..., 3:] + wide(most // 2)) // wide(most)).astype(values.dtype)
    return np.concatenate([rgb, values[..., 4:]], axis=-1)


def lab_to_rgb(values: NDArray, signed: bool) -> NDArray:
    """CIE L*a*b* (D50) of 8 or 16 bits to sRGB of the same type; other samples follow.

    signed: a* and b* are two's complement (TIFF photometric 8), else offset by half the range (photometric 9).
    """
    wide = values.dtype.itemsize > 1
    most = 65535 if wide else 255
    light = values[..., 0].astype(np.float32) * (100 / most)
    unit = 256 if wide else 1
    if signed:
        ab = values[..., 1:3].astype(np.int16 if wide else np.int8).astype(np.float32) / unit
    else:
        ab = (values[..., 1:3].astype(np.float32) - 128 * unit) / unit
    fy = (light + 16) / 116
    f = np.stack([fy + ab[..., 0] / 500, fy, fy - ab[..., 1] / 200], axis=-1)
    xyz = np.where(f > 6 / 29, f**3, (f - 4 / 29) * (3 * (6 / 29) ** 2)) * _D50.astype(np.float32)
    linear = np.clip(xyz @ _XYZ50_TO_RGB.T.astype(np.float32), 0, 1)
    rgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.concatenate([np.round(rgb * most).astype(values.dtype), values[..., 3:]], axis=-1)


def ycbcr_to_rgb(values: NDArray, luma: tuple[float, ...], reference: tuple[float, ...]) -> NDArray:
    """Y, Cb, Cr to RGB with the weights and ranges of TIFF 6.0, section 21; other samples follow."""
    most = float(np.iinfo(values.dtype).max)
    y, cb, cr = (np.float32(values[..., i]) for i in range(3))
    black, white, b0, b1, r0, r1 = reference
    y = (y - black) * (most / (white - black))
    half = most // 2
    cb = (cb - b0) * (half / (b1 - b0))
    cr = (cr - r0) * (half / (r1 - r0))
    kr, kg, kb = luma
    red = y + (2 - 2 * kr) * cr
    blue = y + (2 - 2 * kb) * cb
    green = (y - kb * blue - kr * red) / kg
    rgb = np.clip(np.round(np.stack([red, green, blue], axis=-1)), 0, most).astype(values.dtype)
    return np.concatenate([rgb, values[..., 3:]], axis=-1)


def palette_table(colormap: NDArray) -> NDArray[np.uint8]:
    """A TIFF colour map (3, entries) uint16 as (entries, 3) uint8.

    The standard wants 16-bit entries; tables that hold 0 … 255 instead are taken as they are.
    """
    entries = np.asarray(colormap, np.uint16)
    if entries.max(initial=0) > 255:
        entries = entries >> 8
    return np.ascontiguousarray(entries.astype(np.uint8).T)
