\exec 10<&3 3<&-;
\unset BASH_EXECUTION_STRING;
\shopt -s expand_aliases;
__wr_q= __wr_s=0 __wr_c= __wr_x= __wr_o=;
__wr_next() {
\builtin trap : STKFLT;
if [[ $__wr_o ]]; then __wr_go; fi;
__wr_s=$1;
if [[ $- == *x* ]]; then \builtin set +x; __wr_x=1; else __wr_x=; fi;
if [[ $__wr_q ]]; then { \builtin pwd; \builtin printf '\0%s %s\0' "$__wr_q" "$__wr_s"; } >&10; fi;
__wr_read;
if [[ ! $__wr_q ]]; then \exit 125; [[ ${__wr_broken?} ]]; fi;
if [[ $__wr_x ]]; then __wr_c=$'set -x\n'$__wr_c; fi;
\builtin trap __wr_stop STKFLT;
};
__wr_read() {
\builtin local LC_ALL=C IFS=' ' n;
__wr_q=;
\builtin read -r -u 10 -N 32 n;
__wr_q=${n%% *} n=${n#* };
__wr_c=;
\builtin read -r -u 10 -N "${n%% *}" __wr_c;
};
__wr_status() { if [[ $- == *e* ]]; then \builtin return 0; fi; \builtin return "$__wr_s"; };
__wr_two() { \builtin return 2; };
__wr_again() { [[ 1 ]]; };
__wr_stop() {
if [[ ! $__wr_o ]]; then __wr_o=:$-; fi;
\builtin shopt -s extdebug;
\builtin trap '[[ $BASH_COMMAND == *__wr_* || ${FUNCNAME[0]-} == __wr_* ]] || { \builtin break 0; __wr_two; } 2>/dev/null' DEBUG;
};
__wr_go() {
\builtin trap - DEBUG;
\builtin shopt -u extdebug;
if [[ $__wr_o == *T* ]]; then \builtin set -T; fi;
if [[ $__wr_o == *E* ]]; then \builtin set -E; fi;
__wr_o=;
};
\trap __wr_stop INT;
