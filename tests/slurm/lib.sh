# shellcheck shell=bash
# A cluster of two nodes on this host, for the time of a test; sourced. 77 where it cannot be had.
for tool in srun slurmctld slurmd munged setpriv; do
  type "$tool" >/dev/null 2>&1 || { echo "not run: $tool is not installed (Debian: slurm-wlm slurmctld slurmd munge)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "not run: the cluster of one host needs root"; exit 77; }
. "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
# shellcheck disable=SC2154  # here and work come with lib.sh
testbed=$here/../slurm/slurm-testbed
# shellcheck disable=SC2154
leave() {
  local rc=$?
  [ -z "${SLURM_TESTBED_DIR:-}" ] || "$testbed" stop "$SLURM_TESTBED_DIR" >/dev/null 2>&1 || true
  rm -rf "$work"
  exit "$rc"
}
trap leave EXIT
eval "$("$testbed" start)"
[ -n "${SLURM_TESTBED_DIR:-}" ] || die "the cluster did not start"
