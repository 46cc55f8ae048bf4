#!/bin/sh
# What a shell worker runs for an assignment: `worker.sh DIRECTORY`. As worker.py does.
place=$1
trap '' TERM
aios-task worker step look started --summary "$(aios-task worker request goal)"
: > "$place/begun-$AIOS_ATTEMPT"
while [ ! -e "$place/go" ]; do sleep 0.1; done
aios-task worker step look finished 2>> "$place/refused"
echo "the retry loops on 401" | aios-task worker artifact cause 2>> "$place/refused"
aios-task worker complete "{\"attempt\": $AIOS_ATTEMPT, \"by\": \"$AIOS_WORKER_ID\"}" 2>> "$place/refused"
echo $? > "$place/ended-$AIOS_ATTEMPT"
