# bash completion for sysprofctl; installed as /usr/share/bash-completion/completions/sysprofctl
# shellcheck shell=bash

# Words of the command line that the completion looks at: the command, and the word that is a value's option.
_sysprofctl()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command='' more='' i
	local commands='status top offcpu syscalls locks counters flame series stacks types labels watch record'
	local keys='comm exe pid tid thread uid unit cgroup container pod namespace build-id binary function
		cause syscall errno lock state wait idle'

	# bash splits at '=': "--type=o" is three words.
	if [[ $cur == '=' ]]; then
		cur=''
	elif [[ $prev == '=' ]] && ((COMP_CWORD >= 2)); then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		[[ " $commands " == *" ${COMP_WORDS[i]} "* ]] && command=${COMP_WORDS[i]}
	done
	COMPREPLY=()
	case $prev in
	--type)
		[[ $command == top ]] && more=' counters'
		mapfile -t COMPREPLY < <(compgen -W "on-cpu off-cpu syscalls futex$more" -- "$cur") ;;
	--by)
		case $command in
		syscalls) mapfile -t COMPREPLY < <(compgen -W 'process syscall errno' -- "$cur") ;;
		*) mapfile -t COMPREPLY < <(compgen -W 'function process thread unit container pod binary stack
			cause syscall lock' -- "$cur") ;;
		esac ;;
	--event | -e) mapfile -t COMPREPLY < <(compgen -W 'cpu-clock cycles instructions cache-misses branch-misses' -- "$cur") ;;
	--names) mapfile -t COMPREPLY < <(compgen -W 'full short' -- "$cur") ;;
	--sort) mapfile -t COMPREPLY < <(compgen -W 'self total' -- "$cur") ;;
	--since | --until) mapfile -t COMPREPLY < <(compgen -W 'now today yesterday -5min -1h' -- "$cur") ;;
	--format)
		case $command in
		flame | record) mapfile -t COMPREPLY < <(compgen -W 'svg html folded pprof speedscope' -- "$cur") ;;
		*) mapfile -t COMPREPLY < <(compgen -W 'text json' -- "$cur") ;;
		esac ;;
	--filter)
		mapfile -t COMPREPLY < <(compgen -S = -W "$keys" -- "$cur")
		compopt -o nospace ;;
	--socket | -o | --output) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	-n | --rows | --step | -F | --frequency | -d | --duration) ;;
	*) _sysprofctl_word "$command" "$cur" "$commands" "$keys" ;;
	esac
}

# A command, a label, or an option of the command.
_sysprofctl_word()
{
	local selection='--type --since --until --filter' options=''

	case $1 in
	'') options="$3 --version" ;;
	status | types) options='--format' ;;
	stacks) options='-n --format' ;;
	top) options="$selection --by -n --sort --names --format" ;;
	locks) options='--since --until --filter --kernel -n --format' ;;
	counters) options='--since --until --filter -n --format' ;;
	offcpu) options='--since --until --filter --idle -n --format' ;;
	syscalls) options='--since --until --filter --by -n --format' ;;
	flame) options="$selection -o --wakers --names --format" ;;
	series) options="$selection --by --step -n --format" ;;
	labels) options="$4 $selection -n --format" ;;
	watch) options='--type --filter --format' ;;
	record) options='-F -d -o --event --filter --names --format' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$options --socket --help" -- "$2")
}

complete -F _sysprofctl sysprofctl
