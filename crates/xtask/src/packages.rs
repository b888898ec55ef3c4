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
    /// The compiler of protobuf definitions, where prost-build looks for it.
    Protoc,
    /// The definitions that come with protobuf, where protoc looks for them.
    ProtobufDefinitions,
}

const NEEDS: &[Need] = &[
    // ring is compiled from C, and Rust links with it.
    need(Tier::Build, Sign::Program("cc"), &["gcc", "libc6-dev"]),
    // etcd-client generates etcd's messages from their definitions. Those include some of Google's.
    need(Tier::Build, Sign::Protoc, &["protobuf-compiler"]),
    need(Tier::Build, Sign::ProtobufDefinitions, &["libprotobuf-dev"]),
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
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let locations = Locations {
        path: search_path(),
        protoc: variable("PROTOC"),
        protoc_include: variable("PROTOC_INCLUDE"),
    };
    missing_in(tier, &locations, is_executable, Path::exists)
}

/// Where programs and files are looked for.
#[derive(Default)]
struct Locations {
    path: Vec<PathBuf>,
    /// The variable `PROTOC`.
    protoc: Option<PathBuf>,
    /// The variable `PROTOC_INCLUDE`.
    protoc_include: Option<PathBuf>,
}

impl Locations {
    /// The executable: at its path if that names directories, else the first one in the search path.
    fn find_program(&self, program: &Path, is_executable: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        if program.components().count() > 1 {
            return Some(program.to_owned()).filter(|file| is_executable(file));
        }
        let mut files = self.path.iter().map(|directory| directory.join(program));
        files.find(|file| is_executable(file))
    }

    fn find_protoc(&self, is_executable: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let program = self.protoc.as_deref().unwrap_or(Path::new("protoc"));
        self.find_program(program, is_executable)
    }

    /// Of `/usr/local/bin/protoc`, for example, `/usr/local/include`.
    fn protobuf_definitions(&self, protoc: Option<PathBuf>) -> PathBuf {
        let directory = self.protoc_include.clone().unwrap_or_else(|| {
            // That of the package.
            let protoc = protoc.unwrap_or_else(|| PathBuf::from("/usr/bin/protoc"));
            let protoc = protoc.canonicalize().unwrap_or(protoc);
            let prefix = protoc.parent().and_then(Path::parent);
            prefix.unwrap_or(Path::new("/")).join("include")
        });
        directory.join("google/protobuf/descriptor.proto")
    }
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

fn missing_in(
    tier: Tier,
    locations: &Locations,
    is_executable: impl Fn(&Path) -> bool,
    has_file: impl Fn(&Path) -> bool,
) -> Vec<&'static str> {
    NEEDS
        .iter()
        .filter(|need| need.tier <= tier)
        .filter(|need| match need.sign {
            Sign::Program(program) => locations
                .find_program(Path::new(program), &is_executable)
                .is_none(),
            Sign::File(file) => !has_file(Path::new(file)),
            Sign::Protoc => locations.find_protoc(&is_executable).is_none(),
            Sign::ProtobufDefinitions => {
                let protoc = locations.find_protoc(&is_executable);
                !has_file(&locations.protobuf_definitions(protoc))
            }
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
        let nothing = |tier| missing_in(tier, &Locations::default(), |_| false, |_| false);
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
        let missing = missing_in(Tier::Bed, &Locations::default(), |_| false, |_| true);
        assert!(!missing.contains(&"libseccomp-dev"));
    }

    #[test]
    fn protoc_and_its_definitions_may_be_outside_of_debian_s_packages() {
        let missing = |locations: &Locations, files: &[&str]| {
            let is_there = |file: &Path| files.iter().any(|there| file == Path::new(there));
            let mut missing = missing_in(Tier::Build, locations, is_there, is_there);
            missing.retain(|package| package.contains("protobuf"));
            missing
        };
        let definitions = |prefix: &str| format!("{prefix}/google/protobuf/descriptor.proto");
        let (debian, local, own) = (
            definitions("/usr/include"),
            definitions("/opt/local/include"),
            definitions("/opt/definitions"),
        );
        let mut locations = Locations {
            path: vec!["/opt/local/bin".into(), "/opt/bin".into()],
            ..Locations::default()
        };
        assert_eq!(missing(&locations, &[&debian]), ["protobuf-compiler"]);
        assert!(missing(&locations, &["/opt/local/bin/protoc", &local]).is_empty());
        let elsewhere = missing(&locations, &["/opt/local/bin/protoc", &debian]);
        assert_eq!(elsewhere, ["libprotobuf-dev"], "this protoc does not look there");
        locations.protoc_include = Some("/opt/definitions".into());
        assert!(missing(&locations, &["/opt/local/bin/protoc", &own]).is_empty());
        locations.protoc = Some("/opt/protobuf/protoc".into());
        assert!(missing(&locations, &["/opt/protobuf/protoc", &own]).is_empty());
        assert_eq!(
            missing(&locations, &["/opt/bin/protoc", &own]),
            ["protobuf-compiler"]
        );
        locations.protoc = Some("protoc".into());
        assert!(missing(&locations, &["/opt/bin/protoc", &own]).is_empty());
    }

    #[test]
    fn what_built_this_test_is_not_missing() {
        assert!(!missing(Tier::Build).contains(&"gcc"));
    }
}
