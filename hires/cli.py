"""The command line. Progress and complaints go to stderr, results to stdout.

Exit codes: 0 done, 1 failed, 2 wrong input, 130 and 143 after Ctrl-C and SIGTERM (everything saved), 75 after
SIGUSR1 or SIGUSR2 (stopped early on a batch system's warning: resume).
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from hires import __version__
from hires.convert import convert
from hires.errors import HiresError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
                  context_settings={"help_option_names": ["-h", "--help"]})


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hires {__version__}")
        raise typer.Exit


@app.callback()
def hires(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True,
                                          help="Show the version and leave.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where in the program an error arose "
                                                                "(also: HIRES_DEBUG=1).")] = False,
) -> None:
    """Train ordinary convolutional networks on full-resolution images, exactly, tile by tile."""
    if traceback:
        os.environ["HIRES_DEBUG"] = "1"


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="Run file (TOML).", show_default=False)],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", show_default=False,
                                                   help="Overrides the run file; may be repeated.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", show_default=False,
                                                help="Folder of the run, instead of [train] output.")] = None,
    resume: Annotated[bool, typer.Option("--resume",
                                         help="Go on from the last checkpoint in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite",
                                            help="Start anew in a folder that holds a run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, print the run file, the "
                                                            "data and the memory plan, and leave.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a network as a run file says. --set goes before the file, the file before the defaults."""
    from hires.config import load

    if resume and overwrite:
        raise typer.BadParameter("--resume and --overwrite exclude each other")
    overrides = list(set_ or [])
    if output is not None:
        # A TOML literal of the path, so that a name such as 2024 stays text.
        import json
        overrides.append(f"train.output={json.dumps(str(output))}")
    run_file = load(config, overrides)

    from hires import train as training  # needs torch, whose import takes seconds

    if dry_run:
        from hires.setup import preview
        print(preview(run_file))
        return
    code = training.run(run_file, resume=resume, overwrite=overwrite, quiet=quiet)
    if code:
        raise typer.Exit(code)


app.command()(convert)


def main() -> None:
    """Entry point of the `hires` command: one message per error, no traceback for what the user can mend."""
    try:
        code = app(standalone_mode=False)
    except HiresError as e:
        code = _fail(e, 2)
    except KeyboardInterrupt:
        code = _fail("interrupted; nothing was being trained yet", 130)
    except (MemoryError, OSError) as e:
        code = _fail(e if str(e) else f"out of memory ({type(e).__name__})", 1)
    except RuntimeError as e:
        if not _expected(e):
            raise
        code = _fail(e, 1)
    except Exception as e:
        # What the command line's own parser raises for wrong usage; all else is a fault to be shown whole.
        show, code = getattr(e, "show", None), getattr(e, "exit_code", None)
        if show is None or code is None:
            raise
        show()
    sys.exit(code)


def _expected(e: RuntimeError) -> bool:
    """Failures that aren't faults of the program: a loss that isn't finite, a GPU that is full."""
    return type(e).__name__ in ("RunFailed", "OutOfMemoryError")


def _fail(what: BaseException | str, code: int) -> int:
    if isinstance(what, BaseException) and os.environ.get("HIRES_DEBUG"):
        raise what
    print(f"hires: {what}", file=sys.stderr)
    return code
