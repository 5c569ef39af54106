#!/bin/sh
# Commands at a terminal, with the settings of this host's processes: put it at
# /usr/local/sbin/payintent. For root, as the settings are. `migrate` and `worker` get the database
# role that their units have, all other commands that of the API. What the caller's shell has set
# counts before the files.
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
    # The files' other addresses lead to their database, not to the shell's.
    unset DATABASE_URL DATABASE_DIRECT_URL DATABASE_READ_URL PAYINTENT_DATABASE_URL \
        PAYINTENT_DATABASE_DIRECT_URL PAYINTENT_DATABASE_READ_URL PAYINTENT_DATABASE_POOLED
    echo "payintent: the database is that of this shell, not of /etc/payintent" >&2
fi
eval "$exported"
exec /opt/payintent/bin/payintent "$@"
