#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# $work comes from tests/lib.sh:
# shellcheck disable=SC2154
# For scripts that try many commands of kubectl and count: each check prints a line, and the script fails at its end. To be sourced behind tests/lib.sh.

version=server passed=0 failed=0
# tell ok|FAIL NAME
tell() {
  if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  printf '%-4s %s: %s\n' "$1" "$version" "$2"
}
show() { sed 's/^/       | /' "$work/out" | head -12; }
# does NAME COMMAND...: it succeeds.
does() { local name=$1; shift; if "$@" > "$work/out" 2>&1; then tell ok "$name"; else tell FAIL "$name"; show; fi; }
# has NAME PATTERN COMMAND...: it succeeds and its output has a line with the pattern.
has() { local name=$1 pattern=$2; shift 2; if "$@" > "$work/out" 2>&1 && grep -qE -- "$pattern" "$work/out"; then tell ok "$name"; else tell FAIL "$name (no line has: $pattern)"; show; fi; }
# lacks NAME PATTERN COMMAND...: it succeeds and nothing in its output has the pattern.
lacks() { local name=$1 pattern=$2; shift 2; if "$@" > "$work/out" 2>&1 && ! grep -qE -- "$pattern" "$work/out"; then tell ok "$name"; else tell FAIL "$name (has: $pattern)"; show; fi; }
# refuses NAME PATTERN COMMAND...: it fails and says the pattern.
refuses() { local name=$1 pattern=$2; shift 2; if "$@" > "$work/out" 2>&1; then tell FAIL "$name (was allowed)"; show; elif grep -qE -- "$pattern" "$work/out"; then tell ok "$name"; else tell FAIL "$name (does not say: $pattern)"; show; fi; }
# eventually COMMAND...: within ten seconds it succeeds.
eventually() { for _ in $(seq 100); do "$@" > /dev/null 2>&1 && return 0; sleep 0.1; done; return 1; }
# The last line of such a script.
all_passed() {
  echo "$(basename "$0"): $passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}

# Where kubectl_test.sh keeps those that it builds.
kubectl_cache=${FAIRLEAD_KUBECTL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/kubectl}
# The kubectls 1.30 to 1.33 of this machine: " 1.30=/usr/bin/kubectl.1.30 1.31=..."
kubectls_here() {
  local minor candidate
  for minor in 30 31 32 33; do
    for candidate in "$(command -v "kubectl.1.$minor" || true)" "/usr/lib/google-cloud-sdk/bin/kubectl.1.$minor"; do
      if [ -n "$candidate" ] && [ -x "$candidate" ]; then
        printf ' 1.%s=%s' "$minor" "$candidate"
        break
      fi
    done
  done
}
# Any kubectl; nothing: there is none.
any_kubectl() {
  local candidate
  for candidate in "$(command -v kubectl || true)" /usr/lib/google-cloud-sdk/bin/kubectl.1.3[3210] "$kubectl_cache"/kubectl.1.3*; do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then
      echo "$candidate"
      break
    fi
  done
}
