# The script works in a real shell: verbs, then options, then the values of a closed choice.
source <(sf-train --completion bash)
complete_line() {
  read -ra COMP_WORDS <<<"$1"
  [[ $1 == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _sf_train
  echo "${COMPREPLY[*]}"
}
complete_line 'sf-train ea'
complete_line 'sf-train eagle3 --ran'
complete_line 'sf-train eagle3 --format '
complete_line 'sf-train eagle3 --set training.learn'
