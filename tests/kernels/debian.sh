# shellcheck shell=bash disable=SC2154 # sourced by run.sh
#
# Debian's packages without installing them: an apt root of its own per architecture, on the mirror that this
# machine's apt uses. Everything lies in $root; $arch is Debian's name of the architecture.
lists_days=7

# "URI SUITE" of each Debian source that apt is configured with.
configured_sources()
{
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
		sed -nE 's/^deb[ \t]+(\[[^]]*\][ \t]+)?([^ \t]+)[ \t]+([^ \t]+).*/\2 \3/p'
	cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
		awk 'tolower($1) == "uris:" { uri = $2 }
		     tolower($1) == "suites:" { for (i = 2; i <= NF; i++) suites = suites " " $i }
		     /^[ \t]*$/ { flush() } END { flush() }
		     function flush(  n, s) {
			n = split(suites, s, " "); for (i = 1; i <= n; i++) print uri, s[i]; uri = suites = ""
		     }'
}

find_mirrors()
{
	local uri suite
	release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	mirror='' security=''
	while read -r uri suite; do
		[ "$suite" = "$release" ] && mirror=${mirror:-${uri%/}}
		[ "$suite" = "$release-security" ] && security=${security:-${uri%/}}
	done < <(configured_sources)
	security=${security:-${mirror}-security}
	[ -n "$mirror" ]
}

apt_options()
{
	apt=$root/apt-$arch
	options=(-q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null/none
		-o Dir::Etc::preferencesparts=/dev/null/none -o Dir::Etc::preferences=/dev/null/none
		-o Dir::State="$apt" -o Dir::State::lists="$apt/lists"
		-o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
		-o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User=root
		-o APT::Install-Recommends=false -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false
		-o Acquire::Retries=2)
}

# A suite that the mirror has given up is an error in the log and no more: the others are read.
update_lists()
{
	local line
	if [ -s "$apt/sources.list" ] && [ -z "$(find "$apt/sources.list" -mtime +$lists_days)" ]; then
		return
	fi
	mkdir -p "$apt"/{lists/partial,cache/archives/partial}
	: >"$apt/status"
	for line in "$mirror bullseye" "$security bullseye-security" "$mirror-archive/debian bullseye" \
		"$mirror bookworm" "$security bookworm-security" "$mirror trixie" "$mirror trixie-backports"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $line main"
	done >"$apt/sources.list"
	apt-get "${options[@]}" update >"$apt/log" 2>&1
	if ! ls "$apt"/lists/*_Packages* >/dev/null 2>&1; then
		rm -f "$apt/sources.list"
		return 1
	fi
}

# ---- kernels -----------------------------------------------------------------------------------------

newest_package() # series
{
	apt-cache "${options[@]}" pkgnames linux-image- 2>/dev/null |
		grep -E "^linux-image-${1//./\\.}\.[0-9].*-cloud-$arch\$" | grep -v -- '-rt-' | sort -V | tail -n 1
}

# Unpacks the kernel image of a package into $image, if it has one.
unpack_kernel() # package
{
	local dir=${image%/*}
	rm -f "$dir"/*.deb
	(cd "$dir" && apt-get "${options[@]}" download "$1" >>"$apt/log" 2>&1) || return 1
	dpkg-deb --fsys-tarfile "$dir"/*.deb | tar -xO --wildcards '*/vmlinuz*' >"$image.part" 2>/dev/null
	rm -f "$dir"/*.deb
	[ -s "$image.part" ] && mv "$image.part" "$image"
}

# Prints name and image of the newest kernel of a series, or why there is none.
fetch_kernel() # series
{
	local package name image
	package=$(newest_package "$1")
	if [ -z "$package" ]; then
		echo "no package linux-image-$1*-cloud-$arch at $mirror, see $apt/log"
		return 1
	fi
	name=${package#linux-image-}
	image=$root/$name/vmlinuz
	if [ ! -s "$image" ]; then
		mkdir -p "$root/$name"
		# Since 7.3 the image package is empty and the kernel lies in a package of its own.
		unpack_kernel "$package" || unpack_kernel "linux-binary-$name" || {
			echo "$package: no kernel could be fetched, see $apt/log"
			return 1
		}
	fi
	echo "$name $image"
}

# ---- a root to build with and to run from ---------------------------------------------------------------

# Unpacks packages and all that they depend on, of this machine's release.
fetch_root() # directory, package...
{
	local dir=$1 deb d
	shift
	[ "$(cat "$dir/packages" 2>/dev/null)" = "$*" ] && return
	rm -rf "$dir" "$apt"/cache/archives/*.deb
	apt-get "${options[@]}" -t "$release" -y --download-only install "$@" >>"$apt/log" 2>&1 || return 1
	# Packages of different ages have their files in /lib and in /usr/lib.
	mkdir -p "$dir"/usr/{bin,lib,sbin}
	for d in bin lib sbin; do
		ln -s "usr/$d" "$dir/$d"
	done
	for deb in "$apt"/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" |
			tar -xC "$dir" --keep-directory-symlink --no-same-owner --exclude='./usr/share/doc' || return 1
	done
	rm -f "$apt"/cache/archives/*.deb
	echo "$*" >"$dir/packages"
}
