#compdef porin
# zsh completion of porin

_porin() {
	local -a candidates
	local word about
	while IFS=$'\t' read -r word about; do
		candidates+=("${word//:/\\:}${about:+:$about}")
	done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
	if (( ${#candidates} )); then
		_describe porin candidates
	else
		_files
	fi
}

if [ "$funcstack[1]" = _porin ]; then
	_porin "$@"
else
	compdef _porin porin
fi
