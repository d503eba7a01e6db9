#!/usr/bin/env bash
# Everything that the commands of the README need. Safe to run again: it does only what is missing, and says what.
#   scripts/setup.sh            the Python environment in .venv: enough for `make demo`
#   scripts/setup.sh services   also what the tests drive: Chromium, Redis, nginx, Java and Apache Kafka
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

python=${PYTHON:-}
if [ -z "$python" ]; then
  for candidate in python3.11 python3.12 python3.13 python3; do
    command -v "$candidate" >/dev/null || continue
    if "$candidate" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
fi
[ -n "$python" ] || die "no Python 3.11 to 3.13 on PATH; install one, or name it: PYTHON=/path/to/python make setup"

stamp=.venv/.locked
wanted=$(cat requirements/dev.txt requirements/uv.txt pyproject.toml stream/contract/_*.c aggregator/core/_*.h aggregator/core/*/_*.[ch] | sha256sum | cut -d' ' -f1)
build() { .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --reinstall --editable .; }
compiled() { .venv/bin/python -m tallygate.compiled >/dev/null; }
if [ "$(cat $stamp 2>/dev/null || true)" != "$wanted" ]; then
  say "making .venv from requirements/dev.txt (hashed; about 1.2 GB on disk, much of it the embedded ClickHouse engine)"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --require-hashes -r requirements/uv.txt
  .venv/bin/uv pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes requirements/dev.txt requirements/uv.txt
  build
  compiled || say "no C compiler, or no header files of Python: decisions are encoded and counted, and buckets replayed, in Python, which takes longer"
  echo "$wanted" >$stamp
else
  say ".venv is up to date"
fi
# Every part is a process of its own: read from source, each would take two seconds of CPU to start.
.venv/bin/python -m compileall -q -j 0 enforcer stream aggregator dashboard tallygate benchmarks tests
[ "${1:-}" = services ] || exit 0

missing=()
compiled || missing+=(gcc libc6-dev python3-dev)
command -v chromium >/dev/null && command -v chromedriver >/dev/null || missing+=(chromium chromium-driver)
command -v curl >/dev/null || missing+=(curl)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v openssl >/dev/null || missing+=(openssl)
command -v nginx >/dev/null || missing+=(nginx-light)
command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
command -v mvn >/dev/null || [ -d "${XDG_CACHE_HOME:-$HOME/.cache}/tallygate/kafka-4.3.1" ] || missing+=(maven)
if [ ${#missing[@]} -gt 0 ]; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    say "installing system packages for the tests: ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    compiled || build
  else
    say "missing for the whole test suite: ${missing[*]}; install them (on Debian: apt-get install ${missing[*]})"
    say "tests that need them are skipped with the reason"
  fi
else
  say "system packages are there"
fi
if command -v java >/dev/null; then
  .venv/bin/python -m tallygate.engines.apache_kafka install
fi
