"""What TIFF tags and OME-XML say beside the pixels: pixel size, channel names, geo-reference."""

import math
from typing import Any
from xml.etree import ElementTree

import tifffile

# Lengths in metres, by the names that OME, ImageJ and OME-Zarr use for them.
METRES = {"meter": 1.0, "millimeter": 1e-3, "centimeter": 1e-2, "micrometer": 1e-6, "nanometer": 1e-9,
          "angstrom": 1e-10, "picometer": 1e-12, "inch": 0.0254, "kilometer": 1e3}
_SHORT = {"m": "meter", "mm": "millimeter", "cm": "centimeter", "µm": "micrometer", "μm": "micrometer",
          "um": "micrometer", "micron": "micrometer", "\\u00b5m": "micrometer", "nm": "nanometer",
          "pm": "picometer", "Å": "angstrom", "inch": "inch", "in": "inch", "km": "kilometer"}


def unit_name(name: str | None) -> str | None:
    """The UDUNITS name of a unit of length; names that aren't known stay as they are."""
    if not name or name in ("pixel", "pixels", "reference frame"):
        return None
    return _SHORT.get(name, _SHORT.get(name.lower(), name.lower() if name.lower() in METRES else name))


def in_one_unit(sizes: dict[str, tuple[float, str | None]]) -> tuple[dict[str, float], str | None]:
    """Sizes with a unit each as sizes in the unit of x (or of the first axis); what can't be converted is left out."""
    if not sizes:
        return {}, None
    _, unit = sizes.get("x", next(iter(sizes.values())))
    out = {}
    for axis, (value, own) in sizes.items():
        if own == unit:
            out[axis] = value
        elif own in METRES and unit in METRES:
            out[axis] = value * METRES[own] / METRES[unit]
    return out, unit


def pixel_sizes(page: tifffile.TiffPage, tif: tifffile.TiffFile, series: int) -> tuple[dict[str, float], str | None]:
    """Pixel size per axis and its unit, from OME-XML, ImageJ, Aperio, GeoTIFF or resolution tags, in that order."""
    if tif.is_ome:
        sizes = in_one_unit(_ome_sizes(_ome_pixels(tif, series)))
        if sizes[0]:
            return sizes
    description = page.description or ""
    if description.startswith("Aperio"):
        for part in description.split("|"):
            name, _, value = part.partition("=")
            if name.strip() == "MPP" and _number(value):
                return {"y": float(value), "x": float(value)}, "micrometer"
    scale = page.tags.valueof(33550)
    if scale is not None and len(scale) >= 2 and scale[0] > 0 and scale[1] > 0:
        return {"y": float(scale[1]), "x": float(scale[0])}, None
    across, down = page.tags.valueof(282), page.tags.valueof(283)
    unit = {2: "inch", 3: "centimeter"}.get(int(page.tags.valueof(296, 2)))
    imagej = tif.imagej_metadata if tif.is_imagej else None
    if imagej:
        unit = unit_name(imagej.get("unit"))
    sizes = {}
    for axis, value in (("y", down), ("x", across)):
        if unit and isinstance(value, tuple) and value[0] > 0 and value[1] > 0:
            sizes[axis] = (value[1] / value[0], unit)
    if imagej and unit and _number(imagej.get("spacing")):
        sizes["z"] = (float(imagej["spacing"]), unit)
    if unit in ("inch", "centimeter"):
        sizes = {a: (v * METRES[unit] / METRES["micrometer"], "micrometer") for a, (v, _) in sizes.items()}
    return in_one_unit(sizes)


def channel_labels(tif: tifffile.TiffFile, series: int) -> list[str]:
    """Names of channels from OME-XML or ImageJ; empty where there are none."""
    if tif.is_ome:
        pixels = _ome_pixels(tif, series)
        if pixels is not None:
            channels = [e for e in pixels if _tag(e) == "Channel"]
            names = []
            for i, channel in enumerate(channels):
                name = channel.get("Name") or f"channel {i}"
                samples = int(channel.get("SamplesPerPixel") or 1)
                names += [name] if samples == 1 else [f"{name} {j}" for j in range(samples)]
            return names if any(c.get("Name") for c in channels) else []
    if tif.is_imagej and tif.imagej_metadata:
        labels = tif.imagej_metadata.get("Labels")
        if isinstance(labels, list):
            return [str(label) for label in labels]
    return []


def geo_reference(page: tifffile.TiffPage) -> dict[str, Any]:
    """GeoTIFF tags as they are (ModelPixelScale, ModelTiepoint, ModelTransformation, GeoKeys …), by name."""
    names = {33550: "ModelPixelScale", 33922: "ModelTiepoint", 34264: "ModelTransformation",
             34735: "GeoKeyDirectory", 34736: "GeoDoubleParams", 34737: "GeoAsciiParams"}
    out = {}
    for code, name in names.items():
        value = page.tags.valueof(code)
        if value is not None:
            plain = isinstance(value, str | bytes | int | float)
            out[name] = value if plain else [v.item() if hasattr(v, "item") else v for v in value]
    return out


def _ome_pixels(tif: tifffile.TiffFile, series: int) -> ElementTree.Element | None:
    try:
        root = ElementTree.fromstring(tif.ome_metadata or "")
    except ElementTree.ParseError:
        return None         # tifffile has warned; the pixels can be read without it
    images = [e for e in root if _tag(e) == "Image"]
    if series >= len(images):
        return None
    return next((e for e in images[series] if _tag(e) == "Pixels"), None)


def _ome_sizes(pixels: ElementTree.Element | None) -> dict[str, tuple[float, str | None]]:
    sizes = {}
    for axis in "XYZ" if pixels is not None else "":
        value = pixels.get(f"PhysicalSize{axis}")       # pyright: ignore[reportOptionalMemberAccess]
        unit = pixels.get(f"PhysicalSize{axis}Unit", "µm")  # pyright: ignore[reportOptionalMemberAccess]
        if _number(value):
            sizes[axis.lower()] = (float(value or 0), unit_name(unit))
    return sizes


def _number(value: Any) -> bool:
    try:
        return math.isfinite(float(value)) and float(value) > 0
    except (TypeError, ValueError):
        return False


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
