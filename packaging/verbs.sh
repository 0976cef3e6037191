# shellcheck shell=sh disable=SC2154
# What `./run install`, `package` and `test-packages` do: a part of `run`, with its words.

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

# What is installed and packed, in target/$2, of what was built with cargo's profile of that name ($1: its options).
make_programs() {
    say "Making what is installed"
    # shellcheck disable=SC2086 # words
    cargo rustc --locked $1 -p commonhold --lib --crate-type staticlib
    packaging/programs.sh "target/$2" "$version" "target/installed/$2"
}

install_programs() {
    need_tools
    build_programs
    make_programs --release release
    say "Installing"
    # Root puts it there only where this user may not write.
    place=/usr/local destination='' before=''
    for word; do
        case $before in --prefix) place=$word ;; --destdir) destination=$word ;; esac
        before=$word
    done
    place=$destination$place
    while [ ! -e "$place" ]; do place=$(dirname "$place"); done
    by=as_root
    [ ! -w "$place" ] || by="env"
    "$by" packaging/install.sh --from "$root/target/installed/release/programs" "$@"
}

need_package_tools() {
    set --
    have dpkg-gencontrol || set -- "$@" dpkg-dev
    have lintian || set -- "$@" lintian
    [ "$#" -eq 0 ] || apt_install "$@"
}

# Into target/package. The second ones, with a higher version, are for the test of an upgrade.
make_packages() {
    need_tools
    need_package_tools
    build_programs
    make_programs --release release
    say "Packages for Debian, and a tar"
    packaging/deb.sh "target/installed/release" "$version" target/package
    sh tests/packages/structure.sh target/package
    if [ "$(id -u)" -eq 0 ] && (have debootstrap || apt_install debootstrap); then
        packaging/oci.sh target/package/commonhold_*.deb "$version" "target/package/commonhold-$version-oci.tar" target/roots/oci
    else
        skip "the image for containers (debootstrap needs root)"
    fi
    ls -l target/package
}

test_packages() {
    [ "$(id -u)" -eq 0 ] || fail "test-packages changes its root directory, which only root may"
    have debootstrap || apt_install debootstrap
    make_packages
    packaging/deb.sh "target/installed/release" "$version+1" target/package-newer gzip
    say "Install, use, upgrade, purge"
    sh tests/packages/roots.sh target/package target/package-newer target/roots "$@"
    (need_helm) || skip "the Helm chart (helm could not be built: it takes Go)"
    need_python
    [ -x "$test_environment/bin/python" ] || python3 -m venv "$test_environment"
    check_manifests
}

# Helm is built by `./run test-packages`: that takes minutes.
helm="$root/target/tools/helm"
need_helm() {
    [ ! -x "$helm" ] || return 0
    if have helm; then
        mkdir -p "${helm%/*}"
        ln -sf "$(command -v helm)" "$helm"
    else
        have go || return 1
        GOBIN="${helm%/*}" GOFLAGS=-modcacherw go install helm.sh/helm/v3/cmd/helm@v3.19.5
    fi
}

check_chart() {
    if [ ! -x "$helm" ] && ! have helm; then
        skip "check of the Helm chart (helm is not installed, and \`./run test-packages\` has not built it)"
        return
    fi
    need_helm
    "$helm" lint --quiet --strict packaging/helm/commonhold
    mkdir -p target/tmp
    # One that is built here knows no cluster, and takes it for a very old one.
    "$helm" template commonhold packaging/helm/commonhold --namespace commonhold --kube-version 1.30.0 >target/tmp/chart.yaml
    "$test_environment/bin/kubernetes-validate" --strict --quiet target/tmp/chart.yaml
    "$test_environment/bin/python" tests/packages/chart.py packaging/kubernetes/commonhold.yaml target/tmp/chart.yaml
}

# Each crate that is published, as it would be: packed, and built from what is in its package alone. Nothing is uploaded.
package_crates() {
    need_c
    need_rust
    say "Packing the crates that are published, and building each from its package"
    cargo publish --dry-run --workspace --locked --target-dir "$root/target/crates"
    say "Their documentation, without a warning"
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
}

# That each can be packed, and asks for what will be there.
check_crates() {
    say "Packing the crates that are published"
    cargo publish --dry-run --workspace --locked --no-verify --allow-dirty --quiet --target-dir "$root/target/crates"
}
