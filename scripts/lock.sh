#!/usr/bin/env bash
# Compile pyproject.toml to the hashed requirement files. Names no host and no path.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { # FILE EXTRA...
  local out=requirements/$1; shift
  local extras=(); for extra in "$@"; do extras+=(--extra "$extra"); done
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    "${extras[@]}" pyproject.toml -o "$out"
}
compile enforcer.txt
compile stream.txt stream
compile services.txt dashboard sidecar
compile dev.txt dev
.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' |
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --constraints requirements/dev.txt - -o requirements/build.txt
echo "uv==$(.venv/bin/uv --version | cut -d' ' -f2)" |
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate - \
    -o requirements/uv.txt
