#!/bin/sh
# Commands at a terminal, with the settings of this host's processes: put it at
# /usr/local/sbin/payintent. For root, as the settings are. `migrate` and `worker` get the database
# role that their units have, all other commands that of the API.
set -eua
case "${1:-}" in
    migrate | worker) own=$1 ;;
    *) own=api ;;
esac
. /etc/payintent/payintent.env
. "/etc/payintent/payintent-$own.env"
exec /opt/payintent/bin/payintent "$@"
