"""Run the command line, and turn errors into sentences and exit codes.

0 done · 1 a judgement went against the code (gate, judge) or a host (fleet) · 2 usage or internal
error · 3 cannot measure or compare · 4 inconclusive, contaminated or incomplete · 130 Ctrl-C (128
and the number of any signal). A closed pipe is not an error.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import typer

import gpuperf
from gpuperf.errors import GpuperfError
from gpuperf.model.text import clean, shorten
from gpuperf.verb.registry import verbs as every_verb
from gpuperf.verb.verb import load
from gpuperf.verb.words import HELP, axes_help, refuse_repeated


def make_app(names: Iterable[str] = (), listed: bool = False) -> typer.Typer:
    """Build the command line with the verbs *names*, or with all of them.

    With *listed*, the verbs appear in help only, and their commands are not imported.
    """
    app = typer.Typer(
        name="gpuperf",
        help="How fast is a GPU operation, how fast could it be, and where did the difference go?",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(HELP)},
        rich_markup_mode=None,  # plain help starts in half the time
    )
    app.callback()(_options)
    every = every_verb()
    for verb in (every[name] for name in names or every):
        if listed and verb.group:
            app.add_typer(typer.Typer(), name=verb.name, help=verb.help)
            continue
        if listed:
            app.command(verb.name, help=verb.help)(_nothing)
            continue
        command = load(verb.command)
        if verb.group:
            app.add_typer(command, name=verb.name, help=verb.help)
            continue
        further = load(verb.parameters) if verb.parameters else axes_help if verb.axes else None
        settings = {"allow_extra_args": True, "ignore_unknown_options": True} if further else None
        epilog = further(sys.argv[2:]) if further and set(HELP) & set(sys.argv) else None
        if verb.script:
            settings = {"allow_interspersed_args": False}
        app.command(verb.name, context_settings=settings, epilog=epilog)(command)
    return app


def _nothing() -> None:
    """Stand in for a verb that is only listed."""


def _version(value: bool) -> None:
    if value:
        typer.echo(f"gpuperf {gpuperf.__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Declare the options of all verbs. `--debug`, anywhere, prints tracebacks and the worker's
    output."""


# Options of `profile` without a value.
SWITCHES = {"-m", "--repeat", "--verbose", "-v", "--debug", *HELP}
INCOMPLETE = 4
LONGEST_NAME, LONGEST_MESSAGE = 400, 1000  # characters of an error
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
# Errors of the system that are not gpuperf's fault if they name a file.
ENVIRONMENT = {
    *FULL,
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EMFILE,
    errno.ENFILE,
}

# The root of typer's own errors; its module differs between versions of typer.
_ClickError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> None:
    """Run the command line and exit with its code."""
    # Ctrl-C, a scheduler's SIGTERM and a closed terminal end the run, which keeps its records.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, _interrupt)
    _open_closed_streams()
    code = _guarded(_run)
    gc.freeze()  # the end of the interpreter would search all modules of the charts for 0.1 s
    sys.exit(128 + _signals[0] if _signals else code)


def _open_closed_streams() -> None:
    """Open the null device for closed standard streams. Otherwise the next file that is opened
    takes their number, and prints go into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _run() -> Any:
    """Run the verb of the command line; list all verbs for help and for an unknown verb."""
    names = [name for name in sys.argv[1:2] if name in every_verb()]
    if any(every_verb()[name].measures for name in names):
        refuse_repeated(sys.argv[2:])
    return make_app(names, listed=not names)(prog_name="gpuperf", standalone_mode=False)


_signals: list[int] = []  # the numbers of the signals that arrived


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt at every Ctrl-C, and at the first of each other signal.

    A shell and the kernel may both send SIGHUP.
    """
    repeated = number in _signals
    _signals.append(number)
    if number == signal.SIGINT or not repeated:
        raise KeyboardInterrupt


def _guarded(run: Callable[[], Any]) -> int:
    """Return the exit code of *run*, and write its errors to stderr."""
    debug = _take_debug()
    # A gate or a judge whose output goes to a closed pipe has not passed.
    code = INCOMPLETE if sys.argv[1:2] in (["gate"], ["fleet"], ["judge"]) else 0
    try:
        result = run()
        code = result if isinstance(result, int) else 0
        sys.stdout.flush()
        return code
    except GpuperfError as error:
        if debug:
            traceback.print_exc()
        _report(str(error), error.hint)
        return error.exit_code
    except _ClickError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(error.format_message() + "\n")  # the text of the help
            return 2
        message = error.format_message().replace("Value error, ", "")  # a prefix of typer's parser
        _report(message, "`gpuperf --help`, or --help after the verb")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        _report("interrupted", "")
        return 130
    except (BrokenPipeError, SystemExit) as error:
        # click and rich leave by SystemExit(1) when the reader is gone, while only the gate may
        # exit with 1.
        if isinstance(error, SystemExit) and error.code not in (0, 1, None):
            return 2
        _drop_stdout()
        return code
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError) and (refusal := _refusal(error)):
            _report(*refusal)
            return 2
        _report(
            f"internal error: {type(error).__name__}: {error}",
            "this is a fault of gpuperf; --debug shows where",
        )
        return 2


def _refusal(error: OSError) -> tuple[str, str] | None:
    """Return a message about what the system refused, and a hint; None for a fault of gpuperf."""
    if error.errno in FULL and not error.filename:
        try:  # is stdout full? A blank at its end does no harm
            os.write(sys.stdout.fileno(), b" ")
        except OSError as full:
            _drop_stdout()
            message = f"stdout cannot be written: {full.strerror}"
            return message, "the run file has the records; `gpuperf show` prints them again"
    if error.errno not in ENVIRONMENT or not error.filename:
        return None
    message = f"{os.fsdecode(error.filename)!r} cannot be used: {error.strerror}"
    return message, "choose another file or folder"


def _drop_stdout() -> None:
    """Redirect stdout to the null device, as Python flushes its buffer once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _take_debug() -> bool:
    """Remove `--debug` from the arguments, anywhere before a `--` or the script of `profile`, and
    return whether it was given."""
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    verbs = [i for i in (1, 2) if sys.argv[i : i + 1] == ["profile"]]
    if verbs and set(sys.argv[1 : verbs[0]]) <= {"--debug"}:
        end = min(end, _script_at(verbs[0] + 1))
    if "--debug" in sys.argv[:end]:
        sys.argv.remove("--debug")
        os.environ["GPUPERF_DEBUG"] = "1"
    return bool(os.environ.get("GPUPERF_DEBUG"))


def _script_at(start: int) -> int:
    """Return the index of the script of `profile`: the first argument that is neither an option nor
    the value of one."""
    i = start
    while i < len(sys.argv) and sys.argv[i].startswith("-"):
        i += 1 if sys.argv[i] in SWITCHES or "=" in sys.argv[i] else 2
    return i


def _report(message: str, hint: str) -> None:
    text = f"gpuperf: {_brief(message)}\n" + (f"  hint: {_brief(hint)}\n" if hint else "")
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # the pipe or the terminal is closed; the exit code stays the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _brief(text: str) -> str:
    """Remove control characters from *text*, and shorten long names and long lists."""
    words = (shorten(word, LONGEST_NAME) for word in clean(text).split(" "))
    return shorten(" ".join(words), LONGEST_MESSAGE)
