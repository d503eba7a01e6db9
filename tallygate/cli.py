"""The console command ``tallygate``: reads its words, loads what they need, and turns known faults into one clear line.

Holds no logic of its own, and loads nothing before it knows that it is needed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tallygate.answering import answered
from tallygate.engines.errors import EngineError

#: Subcommands that are one process of the system each: settings come from the environment.
_PROCESSES = {
    "recorder": ("aggregator.recorder.process", "write the exact record from Kafka to ClickHouse"),
    "worker": ("aggregator.worker.process", "keep the live totals (a Faust worker)"),
    "settler": ("aggregator.settler.process", "recount closed minutes from the exact record"),
    "signals": ("aggregator.signals.process", "keep the live signals of every caller (a second Faust worker)"),
    "dashboard": ("dashboard.serve", "serve the pages"),
    "envoy": ("tallygate.envoy", "serve the limiter as Envoy's rate-limit service (gRPC)"),
    "topics": ("tallygate.topics", "create Kafka's topics"),
    "migrate": ("aggregator.migrate", "bring ClickHouse's tables to this release"),
}
#: Commands with words of their own, read by their module's ``main(words)``.
_DELEGATED = {
    "audit": ("aggregator.audit.command", "ask the exact record whether it agrees, and what it was"),
    "replay": ("aggregator.replay.command", "rebuild derived tables from the log or from raw, compare, exchange"),
    "retention": ("aggregator.retention.command", "how long the record is kept; drop a month of it"),
    "dead-letters": ("aggregator.dead_letters.command", "look at messages that could not be read, and re-drive them"),
}
#: Parts that listen on a port of their own, and which port `up` gives them.
_PARTS = {
    "owner": ("Valkey", 16379),
    "kafka": ("Kafka", 19092),
    "clickhouse": ("ClickHouse, HTTP", 18123),
    "dashboard": ("the pages", 8321),
}
#: What is to be installed for a command; for all others, everything on this machine.
_EXTRAS = {"sidecar": "sidecar,stream", "envoy": "envoy,stream"}
_OWN_PACKAGES = frozenset({"enforcer", "stream", "aggregator", "dashboard", "tallygate"})
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 wrong call or settings, 130 interrupted."""
    words = sys.argv[1:] if argv is None else list(argv)
    # Not by argparse: whatever comes after the command is its own module's to read, ``--help`` included.
    options = (
        argparse.Namespace(command=words[0]) if words[:1] and words[0] in _DELEGATED else _parser().parse_args(words)
    )
    try:
        if options.command in _DELEGATED:
            return _delegate(options.command, words[1:])
        return int(_run(options))
    except _known_faults() as error:
        sys.stderr.write(f"tallygate: {error}\n")
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _OWN_PACKAGES:
            raise
        extras = _EXTRAS.get(options.command, "local")
        sys.stderr.write(
            f"tallygate: {options.command} needs the package {package!r}: pip install 'tallygate[{extras}]'\n"
        )
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _delegate(command: str, words: list[str]) -> int:
    """Of these commands 1 is an answer, such as *does not agree*: a wrong setting must not look like it."""
    wrong_setting: type[Exception] = _load("enforcer.errors").ConfigError
    try:
        delegate = _load(_DELEGATED[command][0])
        return answered(command, lambda: int(delegate.main(words)))
    except wrong_setting as error:
        sys.stderr.write(f"tallygate: {error}\n")
        return 2


def _run(options: argparse.Namespace) -> int:
    command: str = options.command
    if command in _PROCESSES:
        return int(_load(_PROCESSES[command][0]).main())
    if command == "policy":
        return _run_policy(options)
    if command == "sidecar":
        sidecar = _load("tallygate.sidecar")
        return int(sidecar.run(listen=options.listen, workers=options.workers, kafka=options.kafka))
    if command == "link":
        return int(
            _load("tallygate.link").print_link(role=options.role, caller=options.caller, base_url=options.base_url)
        )
    if command == "demo":
        demo = _load("tallygate.demo.run")
        return int(
            demo.run(
                seconds=options.seconds,
                rate_per_s=options.rate,
                copies=options.copies,
                report=options.report,
                options=_stack_options(options),
            )
        )
    return int(_load("tallygate.foreground").run_up(_stack_options(options)))


def _run_policy(options: argparse.Namespace) -> int:
    if options.action == "push":
        return int(_load("enforcer.policies.push").push_policy(options.file, to=options.to))
    if options.action == "explain":
        explain = _load("enforcer.policies.explain").explain_request
        said = {name: getattr(options, name) for name in ("caller", "scope", "cost", "tenant")}
        return int(explain(options.policy, **said, as_json=options.json))
    return int(_load("enforcer.policies.check").main(["check", *options.files]))


def _known_faults() -> tuple[type[Exception], ...]:
    """Asked for only once something was raised: loading the enforcer takes longer than ``--help``."""
    enforcer_error: type[Exception] = _load("enforcer.errors").EnforcerError
    return (EngineError, enforcer_error)


def _load(module: str) -> Any:
    return importlib.import_module(module)


def _stack_options(options: argparse.Namespace) -> Any:
    return _load("tallygate.up").StackOptions(
        **_ports(options),
        broker=options.broker,
        data_dir=options.data_dir,
        partitions=options.partitions,
        workers=options.workers,
    )


def _ports(options: argparse.Namespace) -> dict[str, int]:
    """The port of each part: of its flag, else a free one for the demonstration, else of its address or the default.

    The demonstration counts every decision in its record, so it must not be where gateways of others look for it.
    """
    settings = _load("tallygate.config")
    found = settings.local_ports(settings.current_environ())
    ports: dict[str, int] = {}
    for part, (_, default) in _PARTS.items():
        given: int | None = getattr(options, f"{part}_port")
        if given is None and options.command == "up":
            given = found.ports.get(part, default)
            if part in found.elsewhere:
                sys.stderr.write(
                    f"tallygate: {found.elsewhere[part]} names no port of 127.0.0.1: `up` does not use it, and starts "
                    f"its own on port {given}\n"
                )
        ports[f"{part}_port"] = given or 0
    return ports


def _version() -> str:
    """Of the installed distribution; a checkout can be run without being installed."""
    try:
        return metadata.version("tallygate")
    except metadata.PackageNotFoundError:
        return "(not installed as a distribution)"


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.prog} {_version()}\n{_load('tallygate.compiled').described()}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tallygate", description="A rate limiter that can account for itself.")
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="say which release this is, and what of it is compiled"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="run everything on this machine, until Ctrl-C")
    _add_stack(up, fixed_ports=True)
    demo = commands.add_parser(
        "demo", help="the same, with a fleet of gateways, real traffic, and a count that must agree"
    )
    demo.add_argument("--seconds", type=_positive, default=30.0, metavar="N", help="how long to send requests (30)")
    demo.add_argument(
        "--rate", type=_positive, default=400.0, metavar="R", help="requests per second, all callers (400)"
    )
    demo.add_argument("--copies", type=_count, default=4, metavar="N", help="gateway processes (4)")
    demo.add_argument("--report", type=Path, metavar="FILE", help="write the final count as JSON")
    _add_stack(demo, fixed_ports=False)
    for name, (_, text) in _PROCESSES.items():
        commands.add_parser(name, help=text, description=f"{text}; settings are TALLYGATE_… in the environment")
    for name, (_, text) in _DELEGATED.items():
        commands.add_parser(name, help=text, add_help=False)
    sidecar = commands.add_parser("sidecar", help="serve the limiter over HTTP, for gateways in any language")
    sidecar.add_argument("--listen", metavar="ADDRESS", help="host:port or unix:/path (TALLYGATE_SIDECAR)")
    sidecar.add_argument("--workers", type=int, metavar="N", help="processes, each its own copy (1)")
    sidecar.add_argument("--kafka", action="store_true", help="record decisions; so does TALLYGATE_KAFKA, if it is set")
    link = commands.add_parser("link", help="print an address that signs someone in to the pages")
    link.add_argument("--role", choices=["customer", "support"], help="customer with --caller, else support")
    link.add_argument("--caller", metavar="NAME", help="whose usage a customer sees")
    link.add_argument(
        "--base-url",
        metavar="URL",
        help="where the pages are; default: TALLYGATE_DASHBOARD, else those of the running `tallygate up`",
    )
    _add_policy(commands.add_parser("policy", help="check a policy, explain it, give it to a fleet"))
    return parser


def _add_policy(policy: argparse.ArgumentParser) -> None:
    actions = policy.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="report all faults of policies, with their lines")
    check.add_argument("files", nargs="+", metavar="FILE", help="a file, or an address as TALLYGATE_POLICY takes it")
    explain = actions.add_parser("explain", help="say which limits apply to a request, from where, and what it costs")
    explain.add_argument("policy", metavar="POLICY", help="a file, or an address as TALLYGATE_POLICY takes it")
    explain.add_argument("--caller", required=True, metavar="NAME")
    explain.add_argument("--scope", required=True, metavar="SCOPE", help="a scope's name, or a request: 'GET /items/7'")
    explain.add_argument("--cost", metavar="N", help="tokens; default: what the policy says of the scope")
    explain.add_argument("--tenant", metavar="NAME", help="whose the caller is to be; default: what the policy says")
    explain.add_argument("--json", action="store_true", help="one JSON object instead of text")
    push = actions.add_parser("push", help="put a policy into Redis, for every gateway that follows it there")
    push.add_argument("file", metavar="FILE")
    push.add_argument(
        "--to", metavar="ADDRESS", help="redis://host:port/db?key=tallygate:policy; default: that of TALLYGATE_POLICY"
    )


def _add_stack(parser: argparse.ArgumentParser, *, fixed_ports: bool) -> None:
    ports = parser.add_argument_group("ports", "all on 127.0.0.1; 0 takes a free one")
    for part, (name, default) in _PARTS.items():
        usual = f"{default}, or that of its TALLYGATE_… address" if fixed_ports else "a free one"
        ports.add_argument(f"--{part}-port", type=_port, metavar="PORT", help=f"{name} ({usual})")
    parser.add_argument(
        "--broker",
        choices=["embedded", "kafka"],
        default="embedded",
        help="kafka is Apache Kafka on the installed Java",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="keep log and tables there (with --broker kafka)")
    parser.add_argument("--partitions", type=_count, default=4, metavar="N", help="of every topic (4)")
    parser.add_argument("--workers", type=_count, default=1, metavar="N", help="Faust workers (1)")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; allowed: 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_024:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 1 to 1024")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
