//! The Debian packages that are needed: found missing, they are installed where that is allowed, else named.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::run;

/// How much is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// Building the workspace and running what needs no bed.
    Build,
    /// The tools that install into a Kubernetes that somebody else runs.
    Context,
    /// A bed as well.
    Bed,
}

/// Something that must be there, and the packages that bring it.
struct Need {
    tier: Tier,
    sign: Sign,
    packages: &'static [&'static str],
}

/// By what it is seen to be there.
enum Sign {
    Program(&'static str),
    File(&'static str),
}

const NEEDS: &[Need] = &[
    // ring is compiled from C, and Rust links with it.
    need(Tier::Build, Sign::Program("cc"), &["gcc", "libc6-dev"]),
    // etcd-client generates etcd's messages from their definitions. Those include some of Google's.
    need(Tier::Build, Sign::Program("protoc"), &["protobuf-compiler"]),
    need(
        Tier::Build,
        Sign::File("/usr/include/google/protobuf/descriptor.proto"),
        &["libprotobuf-dev"],
    ),
    need(Tier::Build, Sign::Program("git"), &["git"]),
    // runc is partly C and links with it.
    need(
        Tier::Bed,
        Sign::File("/usr/include/seccomp.h"),
        &["libseccomp-dev"],
    ),
    need(Tier::Bed, Sign::Program("pkg-config"), &["pkg-config"]),
    need(Tier::Bed, Sign::Program("ip"), &["iproute2"]),
    need(Tier::Bed, Sign::Program("iptables"), &["iptables"]),
    // kube-proxy forgets connections to pods that are gone with it.
    need(Tier::Bed, Sign::Program("conntrack"), &["conntrack"]),
    need(Tier::Bed, Sign::Program("mkfs.xfs"), &["xfsprogs"]),
    // By hand, downloads are its affair.
    need(Tier::Bed, Sign::Program("curl"), &["curl"]),
    need(Tier::Bed, Sign::Program("modprobe"), &["kmod"]),
];

const fn need(tier: Tier, sign: Sign, packages: &'static [&'static str]) -> Need {
    Need { tier, sign, packages }
}

/// Where root's programs are, also when they are not on the PATH (which `su` does not change).
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];
const APT: &str = "/usr/bin/apt-get";

/// Makes sure that everything needed is there.
pub(crate) fn ensure(tier: Tier) -> Result<(), String> {
    let missing = missing(tier);
    if missing.is_empty() {
        println!("no package is missing");
        return Ok(());
    }
    println!("installing what is missing: {}", command(&missing));
    let apt = |arguments: &[&str]| {
        let mut apt = run::program(Path::new(APT), arguments);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        run::plainly(apt)
    };
    apt(&["update"])?;
    apt(&[INSTALL, missing.as_slice()].concat())
}

const INSTALL: &[&str] = &["install", "-y", "--no-install-recommends"];

/// The one command that installs `packages`.
pub(crate) fn command(packages: &[&str]) -> String {
    format!("apt-get {} {}", INSTALL.join(" "), packages.join(" "))
}

/// The packages that bring what is not there.
pub(crate) fn missing(tier: Tier) -> Vec<&'static str> {
    missing_in(tier, &search_path(), Path::exists)
}

/// Where programs are looked for, here and by what is run from here.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    directories.extend(SYSTEM.map(PathBuf::from));
    directories
}

/// Whether packages may be installed.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Whether there is something to install packages with.
pub(crate) fn has_apt() -> bool {
    Path::new(APT).exists()
}

fn missing_in(tier: Tier, path: &[PathBuf], has_file: impl Fn(&Path) -> bool) -> Vec<&'static str> {
    NEEDS
        .iter()
        .filter(|need| need.tier <= tier)
        .filter(|need| match need.sign {
            Sign::Program(program) => !path
                .iter()
                .any(|directory| is_executable(&directory.join(program))),
            Sign::File(file) => !has_file(Path::new(file)),
        })
        .flat_map(|need| need.packages.iter().copied())
        .collect()
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_on_the_path_means_every_package_is_missing() {
        let nothing = |tier| missing_in(tier, &[], |_| false);
        assert_eq!(
            nothing(Tier::Build),
            ["gcc", "libc6-dev", "protobuf-compiler", "libprotobuf-dev", "git"]
        );
        let bed = nothing(Tier::Bed);
        for package in [
            "gcc",
            "iptables",
            "iproute2",
            "conntrack",
            "xfsprogs",
            "libseccomp-dev",
        ] {
            assert!(bed.contains(&package), "{package}");
        }
    }

    #[test]
    fn a_file_that_is_there_is_not_asked_for() {
        assert!(!missing_in(Tier::Bed, &[], |_| true).contains(&"libseccomp-dev"));
    }

    #[test]
    fn what_built_this_test_is_not_missing() {
        assert!(!missing(Tier::Build).contains(&"gcc"));
    }
}
