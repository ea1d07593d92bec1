# environment FOLDER ARGUMENT...: a virtual environment in FOLDER with this checkout, what these arguments of pip install,
# and pytest; pip is asked only where it has not installed the same before, since it takes ten seconds to find that out
environment() {
    local folder=$1 checkout asked
    shift
    checkout="$PWD $(cksum < pyproject.toml)"
    asked="$checkout $*"
    grep -qxsF -- "$asked" "$folder/asked" && return
    [ -x "$folder/bin/pip" ] || "${PYTHON:-python3}" -m venv "$folder"
    "$folder/bin/pip" install -q --disable-pip-version-check "$@" \
        'pytest>=8.3' 'pytest-asyncio>=1.4' 'pytest-xdist>=3.6' 'hypothesis>=6.115' 'packaging'
    { grep -sF -- "$checkout " "$folder/asked" || true; echo "$asked"; } > "$folder/asked.new"
    mv "$folder/asked.new" "$folder/asked"
}
