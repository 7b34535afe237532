# bash completion of porin

_porin() {
	local word about
	COMPREPLY=()
	while IFS=$'\t' read -r word about; do
		COMPREPLY+=("$word")
	done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}

complete -o default -F _porin porin
