#!/bin/sh
# Settings from KAFKA_…, the log folder formatted once, then the broker in place of this shell, so that signals reach it.
set -eu
export CLUSTER_ID="${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}"
jvm="-Dlog4j2.configurationFile=/etc/kafka/docker/log4j2.yaml -XX:+UseSerialGC ${KAFKA_HEAP_OPTS:--Xms1g -Xmx1g}"
# shellcheck disable=SC2086  # several words
if ! said=$(java $jvm -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
  --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config 2>&1); then
  case $said in
    *"already formatted"*) ;; # the volume of an earlier life
    *) printf '%s\n' "$said" >&2; exit 1 ;;
  esac
fi
# shellcheck disable=SC2086
exec java $jvm -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
