#!/bin/sh
# Run a command with the settings of this host's processes. Install this script as /usr/local/sbin/payintent.
# Only root can read the settings. `migrate` and `worker` use the database role of their units, and all
# other commands use the API's role. Variables that the shell exports override the files.
set -eu
environment=$(export -p)
case "${1:-}" in
    migrate | worker) unit=$1 ;;
    *) unit=api ;;
esac
database=${DATABASE_URL+elsewhere}${PAYINTENT_DATABASE_URL+elsewhere}
set -a
. /etc/payintent/payintent.env
. "/etc/payintent/payintent-$unit.env"
set +a
if [ -n "$database" ]; then
    # The other addresses in the files belong to a different database.
    unset DATABASE_URL DATABASE_DIRECT_URL DATABASE_READ_URL PAYINTENT_DATABASE_URL \
        PAYINTENT_DATABASE_DIRECT_URL PAYINTENT_DATABASE_READ_URL PAYINTENT_DATABASE_POOLED
    echo "payintent: using the database from this shell, not from /etc/payintent" >&2
fi
eval "$environment"
exec /opt/payintent/bin/payintent "$@"
