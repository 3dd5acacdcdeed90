#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A share of what takes long, another one for another commit, and the same one again for the same: the names are shuffled by the seed and dealt out, so that the shares of a seed have every name once and differ by one
# at most in their number.
#   sample.sh SHARE SHARES NAME...     prints the names of that share (from 0), one a line, in the order given. FAIRLEAD_SAMPLE: the seed, else the checkout's commit
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
share=$1 shares=$2
shift 2
seed=${FAIRLEAD_SAMPLE:-$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse HEAD 2> /dev/null || echo none)}
taken=$(for name in "$@"; do printf '%s %s\n' "$(printf '%s %s' "$seed" "$name" | sha256sum | cut -c1-64)" "$name"; done | sort | awk -v share="$share" -v shares="$shares" 'NR % shares == share { print $2 }')
for name in "$@"; do
  if grep -qxF -e "$name" <<< "$taken"; then printf '%s\n' "$name"; fi
done
