#!/bin/sh
# Run a command with the settings of this host's processes: install it as /usr/local/sbin/payintent.
# Only root can read the settings. `migrate` and `worker` use the database role of their units, all
# other commands the API's role. Variables that the shell exports override the files.
set -eu
exported=$(export -p)
case "${1:-}" in
    migrate | worker) own=$1 ;;
    *) own=api ;;
esac
database=${DATABASE_URL+elsewhere}${PAYINTENT_DATABASE_URL+elsewhere}
set -a
. /etc/payintent/payintent.env
. "/etc/payintent/payintent-$own.env"
set +a
if [ -n "$database" ]; then
    # The remaining addresses in the files belong to a different database.
    unset DATABASE_URL DATABASE_DIRECT_URL DATABASE_READ_URL PAYINTENT_DATABASE_URL \
        PAYINTENT_DATABASE_DIRECT_URL PAYINTENT_DATABASE_READ_URL PAYINTENT_DATABASE_POOLED
    echo "payintent: the database is that of this shell, not of /etc/payintent" >&2
fi
eval "$exported"
exec /opt/payintent/bin/payintent "$@"
