#!/bin/bash
# Who may include whom. Prints TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1

declare -A may=(
	[base]="base"
	[model]="base model"
	[collect]="base model helper collect"
	[helper]="base helper"
	[fetch]="base helper fetch"
	[symbol]="base model helper symbol"
	[unwind]="base model helper unwind"
	[parser]="base helper symbol unwind parser"
	[window]="base model collect symbol window"
	[store]="base model store"
	[query]="base model store query"
	[export]="base model export"
	[serve]="base model store query export serve"
	[manager]="base model collect helper fetch symbol unwind window store query export serve manager"
	[ctl]="base model export ctl"
)
n=0 bad=0
echo "1..${#may[@]}"
for layer in "${!may[@]}"; do
	n=$((n + 1))
	wrong=
	while IFS=: read -r file include; do
		to=${include%%/*}
		[[ -d daemon/$to ]] || continue
		[[ " ${may[$layer]} " == *" $to "* ]] || wrong+="$file includes $include; "
	done < <(grep -rhoE --with-filename '^#include "[a-z]+/[^"]+"' "daemon/$layer" | sed -E 's/#include "([^"]+)"/\1/')
	if [ -z "$wrong" ]; then
		echo "ok $n - $layer"
	else
		echo "not ok $n - $layer"
		echo "# $wrong"
		bad=1
	fi
done
exit $bad
