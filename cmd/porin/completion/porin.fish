# fish completion of porin

function __porin_complete
	set -l words (commandline -opc)
	set -l current (commandline -ct)
	set -e words[1]
	porin __complete $words "$current" 2>/dev/null
end

complete -c porin -f -a '(__porin_complete)'
complete -c porin -l socket -r -F
