#!/bin/sh
# Print the Secrets that the manifests name, from the folder that `penstock init --production` wrote:
#
#   sh infra/kubernetes/secrets.sh penstock-config | kubectl apply --filename -
#
# Values pass through no command line. Only what each process needs is in its Secret: everything else of
# the folder's files (addresses, folders, ports) is in the manifests. With a secret store of your own, make
# Secrets of these names and keys from it instead.
set -eu
folder=$(cd "$1" && pwd)
KUBECTL=${KUBECTL:-kubectl}

# variables FILE NAME...: print NAME=value of those that the file sets.
variables() (
  file=$1
  shift
  unset "$@"
  . "$folder/$file"
  for name in "$@"; do
    eval "value=\${$name-}"
    [ -z "$value" ] || printf '%s=%s\n' "$name" "$value"
  done
)

# secret NAME: print a Secret of the lines on standard input.
secret() {
  "$KUBECTL" create secret generic "$1" --namespace penstock --from-env-file=/dev/stdin \
    --dry-run=client --output yaml
  echo ---
}

credentials() {
  for file in "$folder"/gateway-*.env; do
    file=${file##*/}
    name=${file#gateway-}
    variables "$file" PENSTOCK_INTERNAL_CREDENTIAL |
      sed "s/^PENSTOCK_INTERNAL_CREDENTIAL=/${name%.env}=/"
  done
}

variables control.env DATABASE_URL REDIS_URL EMAIL_URL \
  PENSTOCK_SECRET_KEY PENSTOCK_PLAYGROUND_SECRET \
  PENSTOCK_ENCRYPTION_KEY PENSTOCK_ENCRYPTION_KEYS_PREVIOUS \
  PENSTOCK_KEY_PEPPER PENSTOCK_KEY_PEPPERS_PREVIOUS \
  PENSTOCK_INTERNAL_SECRET PENSTOCK_INTERNAL_SECRET_PREVIOUS PENSTOCK_INTERNAL_REVOKED \
  STRIPE_SECRET_KEY STRIPE_PUBLISHABLE_KEY STRIPE_WEBHOOK_SECRET | secret control
variables owner.env DATABASE_OWNER_URL | secret owner
variables fleet.env PENSTOCK_INTERNAL_SECRET PENSTOCK_INTERNAL_SECRET_PREVIOUS \
  PENSTOCK_INTERNAL_REVOKED | secret fleet
variables gateway-gateway-0.env REDIS_URL PENSTOCK_SALT_SECRET \
  PENSTOCK_KEY_PEPPER PENSTOCK_KEY_PEPPERS_PREVIOUS | secret gateway
credentials | secret gateway-credentials
