exec 9<&3 3<&-;
__wr_q= __wr_s=0 __wr_c= __wr_x=;
__wr_next() {
trap : 16;
__wr_s=$1;
case $- in *x*) set +x; __wr_x=1;; *) __wr_x=;; esac;
case $__wr_q in ?*) { command pwd; command printf '\0%s %s\0' "$__wr_q" "$__wr_s"; } >&9;; esac;
__wr_q=;
IFS=' ' read -r __wr_q __wr_l <&9;
case $__wr_q in '') exit 125;; esac;
__wr_c=;
while [ "$__wr_l" -gt 0 ]; do
IFS= read -r __wr_i <&9 || exit 125;
__wr_c=$__wr_c$__wr_i$__wr_n;
__wr_l=$((__wr_l-1));
done;
case $__wr_x in 1) __wr_c="set -x; $__wr_c";; esac;
trap 'break 99' 16;
return 0;
};
__wr_status() { case $- in *e*) return 0;; esac; return "$__wr_s"; };
__wr_again() { return 0; };
trap : INT;
