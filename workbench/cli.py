"""The command line: ``workbench run``, ``publish``, ``runs``, ``topo``, ``check``, ``reshard``, ``doctor``, ``reward-server``.

Heavy imports stand inside.
"""

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from workbench.errors import ConfigError, WorkbenchError
from workbench.findings import visible

USAGE = 2  # exit code of unusable options or input, as click's own


@contextmanager
def _usage_errors() -> Iterator[None]:
    """What can't be read or used ends the command with its reason and exit code 2."""
    try:
        yield
    except WorkbenchError as error:
        _refuse(error)


def _refuse(error: Exception) -> NoReturn:
    click.echo(visible(f"error: {error}"), err=True)
    sys.exit(USAGE)


def _print(text: str) -> None:
    """To standard output. Where that is full the command ends with exit code 2; a reader that has gone is click's business."""
    try:
        click.echo(visible(text))
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again at its end, and complains
        _refuse(ConfigError("standard output", f"it can't be written ({error.strerror})", "make room there, or write elsewhere"))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="rl-workbench", prog_name="workbench")
def main() -> None:
    """RL post-training of language models from notebooks, here without one open."""


@main.command(short_help="Execute a notebook.")
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option("-p", "pairs", nargs=2, multiple=True, metavar="NAME VALUE", help="Set a parameter of the notebook (again for more).")
@click.option("--device-map", type=click.Path(path_type=Path), help="YAML file; sets the notebook's parameter device_map.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The executed notebook.  [default: runs/NAME-TIMESTAMP.ipynb]")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop after S seconds, all cells together.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress and nothing of what cells print.")
def run(
    notebook: Path, pairs: tuple[tuple[str, str], ...], device_map: Path | None, output: Path | None, timeout: float | None, quiet: bool
) -> None:
    """Execute NOTEBOOK with the Python that runs this, from the folder where you stand.

    What its cells print appears as they run; the executed notebook is written as it goes. A parameter that the
    notebook does not have is an error that lists those it has.

    \b
    Exit codes: 0 ok, 1 a cell failed, 2 unusable options or input, 3 time-out, 4 the kernel died,
    130 stopped by Ctrl-C, 143 by SIGTERM.
    """
    try:
        from workbench.headless import notebook as headless
        from workbench.headless import parameters

        known = parameters.parameters_of(headless.read_notebook(notebook).cells, notebook)
        if device_map is not None:
            pairs = (*pairs, ("device_map", parameters.check_device_map(device_map)))
        values = parameters.read_values(pairs, known, notebook)
        target = output or headless.default_output(notebook)
        headless.check_output(target, notebook)
    except ConfigError as error:
        _refuse(error)
    outcome = headless.run_notebook(notebook, target, values, timeout=timeout, quiet=quiet)
    click.echo(outcome, err=True)
    sys.exit(outcome.exit)


@main.command(short_help="Make an executed notebook fit to be shown.")
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="What is written.  [default: NAME-published.ipynb, or NAME.html]")
@click.option("--html", is_flag=True, help="Write a page of one file that needs no network and no Jupyter.")
@click.option("--force", is_flag=True, help="Replace the file where it is there already.")
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
def publish(notebook: Path, out: Path | None, html: bool, force: bool, strict: bool) -> None:
    """Write NOTEBOOK, which was executed, as a code host shows it: pictures in place of widgets, no state, no times of execution.

    Tokens are hidden and home folders written as ~, each with a word of warning; pictures are not searched.

    \b
    Exit codes: 0 ok, also with warnings; 1 with --strict and a warning; 2 unusable options or input.
    """
    with _usage_errors():
        from workbench.headless.publish import publish as write

        done = write(notebook, out, html=html, force=force)
    click.echo(visible(str(done)), err=True)
    sys.exit(1 if strict and done.has_warnings else 0)


@main.command(short_help="List the runs of a folder.")
@click.argument("folder", type=click.Path(path_type=Path), default="runs")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option("--all", "everything", is_flag=True, help="List every run, not only the newest 20.")
def runs(folder: Path, as_json: bool, everything: bool) -> None:
    """List the runs in FOLDER (runs), newest first: state, steps, held-out reward before and after, and how long.

    A run whose process ended without a word is "interrupted"; a damaged one is listed with the reason.

    \b
    Exit codes: 0 ok, also with damaged runs; 2 the folder can't be read.
    """
    from workbench import listing

    if folder == Path("runs") and not folder.exists():
        _print("[]" if as_json else "no runs here yet: a run writes to runs/ where its notebook or script stands")
        return
    try:
        lines, total = listing.list_runs(folder, None if everything else listing.NEWEST)
    except ConfigError as error:
        _refuse(error)
    _print(listing.as_json(lines) if as_json else listing.as_text(lines) if lines else f"no runs in {folder}")
    if total > len(lines):
        click.echo(f"{total - len(lines)} older ones: workbench runs {folder} --all", err=True)


@main.command(short_help="Read a machine's topology.")
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option("--preset", metavar="NAME", help="A known machine, such as dgx-a100 or 2xhgx-h100.")
@click.option("--json", "as_json", is_flag=True, help="Print the topology as JSON.")
def topo(file: str | None, preset: str | None, as_json: bool) -> None:
    """Show GPUs, what lies between them, islands and cliques.

    Of this machine, of a preset (--preset NAME, or preset:NAME), or of FILE, which holds
    what `nvidia-smi topo -m` or `rocm-smi --showtopo` printed (- for standard input).

    \b
    Exit codes: 0 ok, also with warnings; 2 the text is no topology.
    """
    from workbench.survey import read
    from workbench.survey.topo import report

    with _usage_errors():
        if file is not None and preset is not None:
            raise ConfigError("workbench topo", "a file and a preset were given", "give one of them")
        found = read.topology_of(f"preset:{preset}" if preset is not None else file)
    _print(json.dumps(asdict(report(found)), indent=2) if as_json else str(found))


@main.command(short_help="Check a device map on a machine.")
@click.argument("map_file", metavar="MAP")
@click.option("--topology", "machine", metavar="FILE|preset:NAME|cpu:N", help="The machine.  [default: this one]")
@click.option("--model", metavar="M", help="For sizes and memory: a config.json, a folder, shape:qwen2.5-7b ...")
@click.option("--algo", metavar="NAME", help="ppo, grpo ...: which roles it takes.")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Completions a step: whether every rank has work.")
@click.option("--memory", "memory_gib", type=float, metavar="GIB", help="Of a GPU, where the topology does not say it.")
@click.option("--full", is_flag=True, help="The whole model is trained, not LoRA adapters.")
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.option("--fix", is_flag=True, help="Write the patches of the findings into MAP.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def check(as_json: bool, **asked: Any) -> None:
    """Say what is wrong with the device map MAP (YAML or JSON, - for standard input), what is unwise, and what to do.

    Every finding has a code; docs/findings.md explains each with an example.

    \b
    Exit codes: 0 ok, 1 an error was found (with --strict: or a warning), 2 the map or the topology can't be read.
    """
    from workbench.survey.check import Asked, run_check

    with _usage_errors():
        outcome = run_check(Asked(**asked))  # the options are its fields
    _print(json.dumps(asdict(outcome.report), indent=2) if as_json else str(outcome))
    sys.exit(0 if outcome.report.ok else 1)


@main.command(short_help="Count the bytes of a reshard.")
@click.option("--train", required=True, metavar="P,T,D", help="Pipeline, tensor and data parallelism in training, such as 1,8,2.")
@click.option("--generate", required=True, metavar="PG,TG", help="Pipeline and tensor parallelism in generation, such as 1,2.")
@click.option("--bytes", "size", metavar="M", help="All weights: 14e9, 14GB, 13.0GiB.")
@click.option("--model", metavar="M", help="In place of --bytes, in bfloat16: shape:qwen2.5-7b, a config.json, a folder ...")
@click.option("--json", "as_json", is_flag=True, help="Print bytes per GPU and the groups of ranks as JSON.")
def reshard(train: str, generate: str, size: str | None, model: str | None, as_json: bool) -> None:
    """Say what each GPU receives, holds and holds in vain when weights go from training to generation, and draw who gathers from whom.

    Three ways, by the formulas of HybridFlow (arXiv 2409.19256): its own grouping of ranks, the vanilla one, and a full gather.

    \b
    Exit codes: 0 ok; 2 unusable options, or a combination that can't be.
    """
    from workbench.survey.reshard import plan

    with _usage_errors():
        found = plan(train, generate, size, model)
    _print(json.dumps(asdict(found.report)) if as_json else str(found))


@main.command(short_help="Check this machine and installation.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
def doctor(as_json: bool, strict: bool) -> None:
    """Check versions, devices, memory and the engine; say what to do about each finding.

    Exit codes: 0 ok, 1 something is wrong (with --strict: or doubtful).
    """
    from workbench.doctor import examine

    report = examine(lambda what: None if as_json else click.echo(f"checking {what} ...", err=True))
    _print(report.json() if as_json else str(report))
    sys.exit(report.exit_code(strict=strict))


@main.command(name="reward-server", short_help="Serve a reward model over HTTP.")
@click.argument("model")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen. Others than this machine's own need a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any that is free.")
@click.option("--token", metavar="TOKEN", envvar="WORKBENCH_REWARD_TOKEN", help="What clients have to know.  [env: WORKBENCH_REWARD_TOKEN]")
@click.option("--dtype", type=click.Choice(["bfloat16", "float32", "int8"]), default="bfloat16", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="[default: cuda where there is a GPU]")
@click.option("--max-batch", type=click.IntRange(1), default=64, show_default=True, help="Rows that are enough for a batch.")
@click.option("--max-wait-ms", type=click.FloatRange(0), default=5.0, show_default=True, help="How long a batch waits for more rows.")
@click.option("--max-queue", type=click.IntRange(1), default=8192, show_default=True, help="Rows that may wait; more are sent away.")
@click.option("--shared-mem", metavar="NAME", help="Take token ids through shared memory of that name.")
@click.option("--shared-mem-mib", type=click.IntRange(1), default=64, show_default=True, help="Its size.")
def reward_server(**asked: Any) -> None:
    """Serve MODEL until SIGTERM or Ctrl-C: a folder or hub name of a reward model, or module:function of any reward.

    A run uses it with reward=wb.rewards.Service("http://127.0.0.1:8080"). docs/rewards.md has the protocol.

    \b
    Exit codes: 0 ended when told to, 2 unusable options or model.
    """
    from workbench.rewards.server.command import serve
    from workbench.rewards.server.options import Serving

    with _usage_errors():
        serve(Serving(**asked), _print)  # the options are its fields
