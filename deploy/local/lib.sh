# shellcheck shell=bash disable=SC2034
# What up, down and kill share: where things are, and which process is whose.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tooltape
services=(kafka registry postgres)

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# usage: the comment at the head of the script
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# default_dir: where a user's services live unless --dir says otherwise
default_dir() { printf '%s\n' "${TMPDIR:-/tmp}/tooltape-services-$(id -u)"; }

# pid_of DIR: the service's process, if it runs. The command line must name DIR: a number in a file may be another
# process's by now.
pid_of() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) && [[ $(ps -ww -o args= -p "$pid" 2>/dev/null) == *"$1"* ]] && printf '%s\n' "$pid"
}

# gone DIR SECONDS: waits until the service's process has ended
gone() {
  local i
  for ((i = 0; i < $2 * 20; i++)); do
    pid_of "$1" >/dev/null || return 0
    sleep 0.05
  done
  return 1
}

# background LOG COMMAND...: runs it free of this terminal, and prints its pid
background() {
  local log=$1
  shift
  : >"$log" # at once: an old one would say that the service had started
  if command -v setsid >/dev/null; then set -- setsid "$@"; fi
  nohup "$@" >"$log" 2>&1 </dev/null &
  printf '%s\n' "$!"
}

listening() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# port DIR ASKED FROM [COUNT]: the port asked for, else the service's last one, else COUNT free ones in a row. Each service
# has its range, below 32768, so that no other and no client's connection gets it by chance.
port() {
  local p i
  if [[ -n $2 ]]; then
    p=$2
  elif ! p=$(cat "$1/port" 2>/dev/null); then
    p=$(($3 + RANDOM % 2000 * 2))
  fi
  for ((i = 0; i < ${4:-1}; i++)); do
    if ! listening $((p + i)); then continue; fi
    [[ -z $2 && ! -e $1/port ]] || die "port $((p + i)) is taken by another program; stop that, or ask for another port"
    port "$@"
    return
  done
  printf '%s\n' "$p" | tee "$1/port"
}

# java_version PROGRAM: 17, 21, ...
java_version() { "$1" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p'; }

# find_java: $JAVA_HOME's, else the newest of the PATH's and those where Debian puts them; 17 at least
find_java() {
  local java version best='' newest=16
  if [[ -n ${JAVA_HOME:-} ]]; then printf '%s\n' "$JAVA_HOME/bin/java"; return; fi
  for java in "$(command -v java)" /usr/lib/jvm/*/bin/java; do
    [[ -x $java ]] || continue
    version=$(java_version "$java")
    if ((version > newest)); then best=$java newest=$version; fi
  done
  [[ -n $best ]] || die "Kafka and the registry need Java 17 or newer: install it, or set JAVA_HOME"
  printf '%s\n' "$best"
}

# maven ARGUMENTS...: three tries, for the network's sake
maven() {
  command -v mvn >/dev/null || die "fetching Kafka and the registry needs Maven: install it"
  for _ in 1 2 3; do mvn -B -q "$@" >&2 && return; done
  die "Maven could not fetch what it was asked for"
}

# fetched NAME COMMAND: the cache's folder NAME, which COMMAND fills where it is missing. COMMAND is run in an empty folder
# that takes the name once it is whole.
fetched() {
  local folder=$cache/$1 work
  if [[ ! -d $folder ]]; then
    mkdir -p "$cache"
    say "fetching $1, once, to $folder"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    (cd "$work" && "$2") || { rm -rf "$work"; exit 1; }
    chmod 755 "$work"
    # Another start may have been quicker.
    [[ -d $folder ]] || mv "$work" "$folder"
  fi
  printf '%s\n' "$folder"
}

# server_user: whom PostgreSQL runs as, which refuses to be root
server_user() {
  if [[ $(id -u) != 0 ]]; then id -un; elif id postgres >/dev/null 2>&1; then echo postgres; else echo nobody; fi
}

# as_server: the words that run a command as that user, in the array as
as_server() {
  local user
  user=$(server_user)
  as=()
  if [[ $(id -u) == 0 ]]; then as=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups --); fi
}
