"""The run file: one TOML, checked before anything else happens.

Precedence: ``--set section.key=value`` over the file over the defaults below. Relative paths in the file are
resolved against the file's folder, relative paths on the command line against the current one.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hires.errors import ConfigError

Positive = Annotated[int, Field(ge=1)]
Args = dict[str, Any]


class Section(BaseModel):
    """Strict: `epochs = "3"` is an error, not 3; a key that isn't listed is one too."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Data(Section):
    """Where the images are and what is done to them. Exactly one of `manifest` and `folder`."""

    task: Literal["segmentation", "classification"]
    manifest: str | None = None                  # .csv .tsv .parquet .json .jsonl
    folder: str | None = None                    # class subfolders, or images/ and masks/
    root: str | None = None                      # what paths in the manifest are relative to; else its folder
    image: str = "image"                         # column of the image's path
    target: str | None = None                    # column of the mask's path or the class; else "mask"/"label"
    mask_suffix: str = ""                        # folder: masks/a_mask.png goes with images/a.tif
    split: str | None = None                     # column that says which rows are for what
    train: str | list[str] = "train"             # value(s) of that column
    val: str | list[str] = "val"
    val_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    group: str | None = None                     # column: rows of one group never part between train and val
    classes: list[str | int] | dict[str, str | int] | None = None
    ignore: int | list[int] | None = None        # values in the mask that count for nothing
    class_weights: Literal["balanced"] | list[float] | None = None
    unit: bool = False                           # divide whole numbers by their type's largest (255, 65535)
    mean: float | list[float] | None = None      # subtracted, per channel, after `unit`
    std: float | list[float] | None = None       # divided by, per channel, after `unit`
    channels: Positive | None = None             # grey images are repeated to so many
    nan: Literal["refuse", "mask"] = "refuse"    # mask: fed as the mean, and left out of the loss
    flip: list[str] = []                         # axes that are flipped by chance, e.g. ["y", "x"]
    turns: bool = False                          # quarter turns by chance, in the plane (y, x)
    crop: dict[str, list[int]] = {}              # fixed region, e.g. { y = [0, 4096], x = [0, 4096] }
    cache: str | None = None                     # folder for counted classes; else the output folder


class Model(Section):
    """What is trained, named as one would import it."""

    name: str                                    # torchvision:resnet18, hires:unet, net.py:build
    args: Args = {}
    weights: str | None = None                   # a state_dict, or a checkpoint of another run, to start from


class Loss(Section):
    """Loss by name (hires.models.losses)."""

    name: str = "CrossEntropy"
    args: Args = {}
    weigh: Literal["auto", "pixels", "images", "sum"] = "auto"    # how accumulated images are weighed


class Optim(Section):
    """Any optimizer of torch.optim."""

    name: str = "AdamW"
    lr: Annotated[float, Field(gt=0)] | None = None
    args: Args = {}


class Schedule(Section):
    """Any scheduler of torch.optim.lr_scheduler."""

    name: str
    every: Literal["epoch", "step"] = "epoch"
    args: Args = {}


class Train(Section):
    """How long, how much at once, and where it goes."""

    output: str = "run"
    epochs: Positive | None = None
    max_steps: Positive | None = None
    batch: Positive = 1                          # images (of equal size) in one forward
    accumulate: Positive = 1                     # forwards in one optimizer step
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    clip_value: Annotated[float, Field(gt=0)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    device: str = "auto"                         # auto, cpu, cuda, cuda:1
    precision: Literal["float32", "float64"] = "float32"
    validate_every: Positive = 1                 # epochs
    monitor: Literal["loss", "accuracy", "macro_f1", "mean_iou"] = "loss"    # says which checkpoint is best
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 10.0
    checkpoint_steps: Positive | None = None


class Memory(Section):
    """What the step may use."""

    budget: str | Positive = "4GiB"
    tile: Positive | list[int] | None = None
    store: str = "auto"


class Log(Section):
    """What is written while it runs."""

    tensorboard: bool = True
    plots: bool = True
    images: Annotated[int, Field(ge=0)] = 1      # validation images shown in TensorBoard
    every_seconds: Annotated[float, Field(ge=0)] = 10.0    # plain progress lines, where there is no terminal


class Config(Section):
    """A whole run."""

    data: Data
    model: Model
    loss: Loss = Loss()
    optim: Optim = Optim()
    schedule: Schedule | None = None
    train: Train
    memory: Memory = Memory()
    log: Log = Log()

    def to_dict(self) -> dict[str, Any]:
        """Nested dict of TOML types; what is unset is left out."""
        return self.model_dump(exclude_none=True)

    def to_toml(self) -> str:
        """The resolved run as TOML: read back it gives the same Config from any folder."""
        return tomli_w.dumps(self.to_dict())


# Keys that hold a path to resolve. model.name is one only in the form path/to/net.py:build.
_PATHS = [("data", "manifest"), ("data", "folder"), ("data", "root"), ("data", "cache"),
          ("model", "weights"), ("train", "output")]
# Words people bring from other programs.
_SYNONYMS = {"learning_rate": "lr", "batch_size": "batch", "accumulate_grad_batches": "accumulate",
             "num_epochs": "epochs", "max_epochs": "epochs", "grad_clip": "clip_norm",
             "scheduler": "schedule",
             "optimizer": "optim", "csv": "manifest", "mask": "target", "label": "target", "augment": "flip",
             "ignore_index": "ignore", "workers": "threads", "output_dir": "output"}


def load(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a run file, apply ``section.key=value`` overrides, check, and resolve its paths.

    Raises ConfigError naming the file, the line and the key; all faults at once.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise ConfigError(f"{path}: can't read the run file ({e.strerror})") from None
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path}: not a text file in UTF-8 (byte {e.start})") from None
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{path}: not valid TOML: {e}") from None

    _resolve(raw, path.resolve().parent)
    if isinstance(raw.get("train"), dict):
        raw["train"].setdefault("output", str(path.resolve().parent / "run"))
    given = {}
    for item in overrides:
        keys, value = _parse_override(item)
        layer = value
        for key in reversed(keys):
            layer = {key: layer}
        _resolve(layer, Path.cwd())
        _merge(raw, layer, item)
        given[keys] = item
    return _check(raw, str(path), text, given)


def from_dict(raw: dict[str, Any], source: str = "config") -> Config:
    """Check a nested dict, as `load` does for a file; `source` names it in errors."""
    return _check(raw, source, "", {})


def nearest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean "x"?)`` or, where nothing is near, the list of what there is."""
    known = list(known)
    close = difflib.get_close_matches(word, known, 1, 0.6) or difflib.get_close_matches(
        word.lower(), [k for k in known if k.lower() == word.lower()] or known, 1, 0.6)
    synonym = _SYNONYMS.get(word)
    if synonym in known:
        close = [synonym]
    if close:
        return f'; did you mean "{close[0]}"?'
    shown = ", ".join(sorted(known)[:40])
    return f"; there is: {shown}" if shown else ""


def _parse_override(item: str) -> tuple[tuple[str, ...], Any]:
    name, equals, value = item.partition("=")
    keys = tuple(k.strip() for k in name.strip().split("."))
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(f'--set {item}: expected section.key=value, as in --set train.epochs=3')
    try:
        return keys, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return keys, value.strip()      # a bare word is a string


def _merge(into: dict[str, Any], layer: dict[str, Any], item: str) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict) and key != "classes":
            _merge(into[key], value, item)
        else:
            into[key] = value


def _resolve(raw: dict[str, Any], folder: Path) -> None:
    for section, key in _PATHS:
        table = raw.get(section)
        if isinstance(table, dict) and isinstance(table.get(key), str):
            table[key] = str(folder / Path(table[key]).expanduser())
    for section in ("model", "loss"):
        table = raw.get(section)
        if isinstance(table, dict) and isinstance(table.get("name"), str):
            file, colon, function = table["name"].rpartition(":")
            if colon and file.endswith(".py"):
                table["name"] = f"{folder / Path(file).expanduser()}:{function}"


def _check(raw: dict[str, Any], source: str, text: str, given: dict[tuple[str, ...], str]) -> Config:
    try:
        config = Config.model_validate(raw)
    except ValidationError as e:
        by_key: dict[tuple[str, ...], list[Any]] = {}
        for error in e.errors():
            by_key.setdefault(_named(error["loc"]), []).append(error)
        raise ConfigError("\n".join(_explain(loc, errors, raw, source, text, given)
                                    for loc, errors in by_key.items())) from None
    _check_together(config, source)
    return config


def _check_together(config: Config, source: str) -> None:
    """Faults that need more than one key to see."""
    data, train = config.data, config.train

    def fail(key: str, what: str) -> None:
        raise ConfigError(f"{source}: {key}: {what}")

    if (data.manifest is None) == (data.folder is None):
        fail("[data] manifest, folder", "give exactly one of the two")
    if data.folder is not None:
        for key in ("split", "group", "root", "target"):
            if getattr(data, key) is not None:
                fail(f"[data] {key}", "is for a manifest, and has no meaning with folder")
    if data.split is not None and data.val_fraction:
        fail("[data] val_fraction", "split already says which rows are for validation; give one of the two")
    if train.epochs is None and train.max_steps is None:
        fail("[train] epochs", "give epochs or max_steps")
    if (data.mean is None) != (data.std is None):
        fail("[data] mean, std", "give both or neither")
    for v in data.std if isinstance(data.std, list) else [data.std]:
        if v is not None and not v > 0:
            fail("[data] std", f"must be above 0, not {v}")
    if data.nan == "mask" and data.task == "classification":
        fail("[data] nan", '"mask" leaves pixels out of the loss, so it needs task = "segmentation"')
    if data.task == "classification" and data.ignore is not None:
        fail("[data] ignore", 'is a value of a mask, so it needs task = "segmentation"')
    if len(set(data.flip)) < len(data.flip) or any(len(a) != 1 or a == "c" for a in data.flip):
        fail("[data] flip", f'must list spatial axes by letter, as in ["y", "x"], not {data.flip}')
    for axis, ends in data.crop.items():
        if len(axis) != 1 or axis == "c" or len(ends) != 2 or not 0 <= ends[0] < ends[1]:
            fail(f"[data] crop.{axis}", "must be a spatial axis and [start, stop] in pixels with "
                                        f"0 <= start < stop, not {ends}")
    if config.data.task == "classification" and train.monitor == "mean_iou":
        fail("[train] monitor", 'mean_iou is for segmentation; use "loss", "accuracy" or "macro_f1"')


def _explain(loc: tuple[str, ...], errors: list[Any], raw: dict[str, Any], source: str, text: str,
             given: dict[tuple[str, ...], str]) -> str:
    item = next((i for keys, i in given.items() if keys[:len(loc)] == loc or loc[:len(keys)] == keys), None)
    line = _line_of(text, loc)
    where = f"--set {item}" if item else f"{source}:{line}" if line else source
    key = f"[{loc[0]}]" + (" " + ".".join(loc[1:]) if loc[1:] else "")
    kind, ctx, got = errors[0]["type"], errors[0].get("ctx", {}), errors[0].get("input")
    if len(errors) > 1:     # one for each thing it could have been: say all at once
        kind, got = "union", raw
        for part in loc:
            got = got.get(part) if isinstance(got, dict) else None
    if kind == "extra_forbidden":
        known = list(_fields(loc[:-1]))
        hint = nearest(loc[-1], known)
        if "args" in known and "did you mean" not in hint:
            hint += f" (arguments of {loc[0]} itself go into [{loc[0]}.args])"
        what = ("no such section" if len(loc) == 1 else "no such key") + hint
    elif kind == "missing":
        what = "is missing" + ("" if len(loc) > 1 else " (a section)")
    elif kind == "literal_error":
        what = f"must be {ctx.get('expected', '')}, not {_show(got)}"
        if isinstance(got, str):
            hint = nearest(got, re.findall(r"'([^']*)'", ctx.get("expected", "")))
            what += hint if "did you mean" in hint else ""
    elif kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        sign = {"greater_than": ("above", "gt"), "greater_than_equal": ("at least", "ge"),
                "less_than": ("below", "lt"), "less_than_equal": ("at most", "le")}[kind]
        what = f"must be {sign[0]} {ctx[sign[1]]:g}, not {_show(got)}"
    elif isinstance(got, dict) and kind in ("model_type", "dict_type"):
        what = "must be a table"
    elif kind == "model_type":
        what = f"must be a table ([{'.'.join(loc)}]), not {_show(got)}"
    else:
        what = f"must be {_allowed(loc)}, not {_show(got)}"
    return f"{where}: {key}: {what}"


def _named(loc: Sequence[Any]) -> tuple[str, ...]:
    """The path in the file: pydantic adds the names of union members, which the user never wrote."""
    path: list[str] = []
    for part in loc:
        if path and not isinstance(part, str):
            break
        inner = _fields(path)
        if path and inner is not None and len(path) >= 2 and part not in inner:
            break
        path.append(str(part))
    return tuple(path[:2])


def _fields(path: Sequence[str]) -> dict[str, Any]:
    model: Any = Config
    for part in path:
        field = model.model_fields.get(part) if hasattr(model, "model_fields") else None
        if field is None:
            return {}
        model = next((a for a in (field.annotation, *get_args(field.annotation))
                      if isinstance(a, type) and issubclass(a, BaseModel)), None)
    return dict(model.model_fields) if model is not None else {}


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Any: "any value"}


def _allowed(loc: Sequence[str]) -> str:
    field = _fields(loc[:-1]).get(loc[-1])
    return _words(field.annotation) if field is not None else "another value"


def _words(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if kind in _WORDS:
        return _WORDS[kind]
    if origin is Annotated:
        return _words(args[0])
    if origin is Literal:
        return " or ".join(f'"{a}"' for a in args)
    if origin is list:
        return f"a list of [{_words(args[0])}]"
    if origin is dict:
        return "a table"
    return " or ".join(_words(a) for a in args if a is not type(None)) or "a table"


def _show(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    text = {"True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= 80 else text[:77] + "..."


def _line_of(text: str, loc: Sequence[str]) -> int | None:
    """Line of a key, for the message only; None where the file writes it in a way not looked for."""
    section: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            section = [p.strip().strip("\"'") for p in header[1].split(".")]
            if section == list(loc):
                return number
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            if [*section, *(p.strip("\"'") for p in key[1].split("."))][:len(loc)] == list(loc):
                return number
    return None
