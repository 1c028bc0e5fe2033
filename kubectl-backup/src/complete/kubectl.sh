#!/bin/sh
# Completion of `kubectl backup`, by kubectl's own: save it as kubectl_complete-backup, executable, on the PATH.
exec kubectl-backup __complete "$@"
